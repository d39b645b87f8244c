"""On a local disk nothing durable may refer to a WAL entry whose name is not on the disk yet.

A directory entry lives in memory until the directory is synced, so each test notes the order of
syncs and of names given, and looks at what was synced when the region manifest got its next version.
"""

import os
from pathlib import Path

import pytest

from memwal_core.errors import CommitUnknownError
from memwal_core.format.paths import generation_path, wal_directory, wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.snapshot.run import build_region_snapshot
from memwal_core.key_filter import KEY_FILTER_NAME, PYLANCE_FILTER_NAME
from memwal_core.region import ManifestStore
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.storage import local_files
from memwal_core.storage.local import STAGING_NAME
from memwal_core.writer import RegionWriter
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import create_region, flushed_rows

SETTINGS = Settings(storage=StorageSettings(fsync=True, retry_wait_s=0), writer=WriterSettings(background_flush=False))


class Disk:
    """Which names in a directory would survive a power failure, and when a manifest version was named."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.named: set[str] = set()
        self.synced: set[str] = set()
        self.unsynced_at_manifest: list[set[str]] = []
        self.fails_to_sync: str | None = None
        sync, link = local_files.sync_path, local_files.link_new

        def sync_path(path: str) -> None:
            if path == self.fails_to_sync:
                raise OSError("the process is killed here")
            sync(path)
            self.synced |= {name for name in self.named if os.path.dirname(name) == path}

        def link_new(staged: str, target: str) -> bool:
            if f"{os.sep}manifest{os.sep}" in target:
                self.unsynced_at_manifest.append(self.entries() - self.synced)
            made = link(staged, target)
            self.named.add(target)
            return made

        monkeypatch.setattr(local_files, "sync_path", sync_path)
        monkeypatch.setattr(local_files, "link_new", link_new)

    def entries(self) -> set[str]:
        return {name for name in self.named if f"{os.sep}wal{os.sep}" in name}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def _region_with_an_unsynced_entry(table, disk: Disk) -> RegionId:
    """Let a writer be killed after it named its second entry and before it synced the name."""
    region_id = create_region(table)
    writer = RegionWriter.open(table.with_settings(SETTINGS), region_id)
    writer.put(people(1))
    disk.fails_to_sync = table.store.uri_of(wal_directory(region_id))
    with pytest.raises(CommitUnknownError):
        writer.put(people(2))
    disk.fails_to_sync = None
    named = table.store.uri_of(wal_entry_path(region_id, 2, ".lance"))
    assert disk.entries() - disk.synced == {named}
    disk.unsynced_at_manifest.clear()
    return region_id


@pytest.mark.req("WRT-26", "MEM-25", "WRT-70")
def test_a_successor_flushes_replayed_entries_only_once_their_names_are_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    region_id = _region_with_an_unsynced_entry(table, disk)
    writer = RegionWriter.open(table, region_id)  # The claim is a version, too, and refers to none.
    assert len(disk.unsynced_at_manifest) == 1
    record = writer.flush()
    assert disk.unsynced_at_manifest[1:] == [set()]
    assert flushed_rows(table, region_id, record) == {1: "p1", 2: "p2"}


@pytest.mark.req("WRT-26", "MEM-25")
@pytest.mark.parametrize("pack_below_bytes", [0, 65536], ids=["linked", "packed"])
def test_a_flush_syncs_every_file_once_before_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack_below_bytes: int
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    region_id = create_region(table)
    of_writer = WriterSettings(background_flush=False, pack_below_bytes=pack_below_bytes)
    writer = RegionWriter.open(table.with_settings(SETTINGS.model_copy(update={"writer": of_writer})), region_id)
    writer.put(people(1, 2))
    synced: list[str] = []
    sync, link = os.fsync, local_files.link_new

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def link_new(staged: str, target: str) -> bool:
        if STAGING_NAME in staged:  # It was synced under that name.
            synced.append(target)
        return link(staged, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(local_files, "link_new", link_new)
    record = writer.flush()
    assert record is not None
    generation = Path(table.store.uri_of(generation_path(region_id, record.path)))
    written = [generation, *generation.rglob("*")]
    assert {path.name for path in written} >= {KEY_FILTER_NAME, PYLANCE_FILTER_NAME, "page_data.lance"}
    recorded = next(number for number, path in enumerate(synced) if f"{os.sep}manifest{os.sep}" in path)
    before = synced[:recorded]
    assert [before.count(str(path)) for path in written] == [1] * len(written)
    assert before.count(str(generation.parent)) == 1


@pytest.mark.req("WRT-26", "WRT-45", "MEM-41")
def test_a_hint_never_points_at_an_entry_whose_name_is_not_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    region_id = _region_with_an_unsynced_entry(table, disk)
    manifests = ManifestStore(table.store, IdSource(), settings=SETTINGS.storage)
    before = manifests.load(region_id)
    build_region_snapshot(JobContext(OpenTable.of(table)))
    after = manifests.load(region_id)
    assert (before.wal_id_last_seen, after.wal_id_last_seen) == (0, 2)
    assert after.version == before.version + 1
    assert disk.unsynced_at_manifest == [set()]
