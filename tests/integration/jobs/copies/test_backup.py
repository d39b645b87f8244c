"""Backups: complete in themselves, of one moment, whatever happens to the original (S1)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import pytest

from memwal_core.errors import (
    ConflictError,
    CorruptionError,
    DamagedError,
    FrozenError,
    InvalidRequestError,
    MemwalError,
)
from memwal_core.format.paths import JOURNAL_DIRECTORY, generation_path
from memwal_core.jobs.backup.identity import with_same_identity
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.backup.run import COPY_PUBLISHED, copy_table
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import IndexSettings, Settings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.failpoints import ArmedFailpoints
from testkit.hands.clients import lancedb_table
from testkit.tables.people import make_people_table, people
from tests.integration.jobs.copies.places import (
    FLUSHED,
    RIGHT,
    Place,
    flushed_and_merged,
    make_place,
    make_table,
    seen,
    seen_by_pylance,
)
from tests.integration.jobs.freeze.histories import LANCEDB, PYLANCE, Client

ON_S3 = [pytest.mark.s3]


@pytest.fixture(
    params=[
        ("links", "links"),
        ("no links", "no links"),
        pytest.param(("links", "s3"), marks=ON_S3),
        pytest.param(("s3", "links"), marks=[*ON_S3, pytest.mark.slow]),
        pytest.param(("s3", "s3"), marks=[*ON_S3, pytest.mark.slow]),
    ],
    ids=" to ".join,
)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Place]:
    """Where the original is, and where the copy goes."""
    first, second = request.param
    s3 = request.getfixturevalue("s3") if "s3" in request.param else None
    source = make_place(first, tmp_path, s3)
    return source, source if first == second else make_place(second, tmp_path, s3)


def backup_to(place: Place, name: str) -> BackupRequest:
    return BackupRequest(target=place.uri(name), target_options=dict(place.options))


def test_backup_has_every_row_after_the_original_is_gone_and_relocates_to_its_address(
    places: tuple[Place, Place],
) -> None:
    source, target = places
    table = make_table(source)

    report = table.run(backup_to(target, "copy.lance"))

    assert report.outcome is JobOutcome.DONE
    assert report.proof == {
        "files": len(report.moment.files), "base_rows": 4, "flushed_memtables": 2, "flushed_rows": 31, "wal_entries": 2,
    }  # fmt: skip
    source.remove("people.lance")
    copy = target.open("copy.lance")
    assert seen(copy) == RIGHT
    assert seen_by_pylance(copy) == FLUSHED
    with pytest.raises(FrozenError, match="another address"):
        copy.run(MergeRequest())
    assert copy.run(RelocateRequest()).outcome is JobOutcome.DONE
    assert flushed_and_merged(target.open("copy.lance")) == RIGHT | {2: "merged"}
    assert {each.severity.value for each in copy.doctor(contents=True).findings} <= {"warning"}


def test_backup_restored_over_the_original_goes_on_as_it_was(places: tuple[Place, Place]) -> None:
    source, target = places
    table = make_table(source)
    table.run(backup_to(target, "copy.lance"))
    with table.writer(takeover="fence") as writer:
        writer.put(people(99, name="after the backup"))
        writer.flush()
    table.run(MergeRequest())

    source.remove("people.lance")
    kept, home = target.store(), source.store()
    for info in list(kept.list_objects("copy.lance")):
        home.put(f"people.lance{info.path.removeprefix('copy.lance')}", kept.get(info.path))

    restored = source.open("people.lance")
    assert seen(restored) == RIGHT
    assert restored.run(MergeRequest()).outcome is JobOutcome.DONE
    if source is not target:
        assert restored.run(RelocateRequest(dry_run=True)).outcome in (JobOutcome.PLANNED, JobOutcome.NOTHING_TO_DO)
    assert flushed_and_merged(restored) == RIGHT | {2: "merged"}


def test_writer_of_the_lost_original_is_told_to_restart(tmp_path: Path) -> None:
    """It was told to stop all writers and to follow the runbook of damaged manifests, though nothing is damaged."""
    base = make_people_table(str(tmp_path / "t"), rows=people(1), buckets=1)
    with TableWriter.open(base) as writer:
        writer.put(people(2))
    Table.open(base.uri).run(BackupRequest(target=str(tmp_path / "copy")))
    lost = TableWriter.open(base)
    lost.put(people(3))
    shutil.rmtree(base.uri)
    shutil.copytree(tmp_path / "copy", base.uri)

    with pytest.raises(MemwalError, match="restored from a copy, restart its writers"):
        lost.flush()
    lost.close()


def test_backup_on_a_disk_shares_no_file_with_the_original_nor_within_itself(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    assert any(each.stat().st_nlink > 1 for each in Path(table.uri).rglob("*") if each.is_file())
    table.run(backup_to(place, "copy.lance"))
    assert {each.stat().st_nlink for each in Path(place.uri("copy.lance")).rglob("*") if each.is_file()} == {1}


def test_second_run_does_nothing_and_another_copy_or_place_is_refused(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    assert table.run(BackupRequest(target=place.uri("copy.lance"), dry_run=True)).outcome is JobOutcome.PLANNED
    assert not Path(place.uri("copy.lance")).exists()
    table.run(backup_to(place, "copy.lance"))
    before = {each: each.stat().st_mtime_ns for each in Path(place.uri("copy.lance")).rglob("*") if each.is_file()}

    assert table.run(backup_to(place, "copy.lance")).outcome is JobOutcome.NOTHING_TO_DO
    assert {each: each.stat().st_mtime_ns for each in before} == before
    with pytest.raises(InvalidRequestError, match="must be empty"):
        table.run(CloneRequest(target=place.uri("copy.lance")))
    other = make_table(place, "other.lance")
    with pytest.raises(InvalidRequestError, match="must be empty"):
        other.run(backup_to(place, "copy.lance"))
    with pytest.raises(InvalidRequestError, match="must be empty"):
        table.run(backup_to(place, "other.lance"))
    for inside in (f"{table.uri}/backup", table.uri, str(tmp_path), f"{table.uri}/../people.lance"):
        with pytest.raises(InvalidRequestError, match="inside of each other"):
            table.run(BackupRequest(target=inside))
    assert seen(other) == RIGHT


def test_copy_that_another_one_overtook_on_its_way_to_the_same_target_is_refused(tmp_path: Path) -> None:
    """It took the place of the other's journal, and left regions of its own in a backup that was proven."""
    place = make_place("links", tmp_path, None)
    table, other = make_table(place), make_table(place, "other.lance")
    before: set[Path] = set()

    def overtake(stage: str, _done: int, _total: int | None) -> None:
        if stage == "looking" and not before:
            other.run(backup_to(place, "copy.lance"))
            before.update(Path(place.uri("copy.lance")).rglob("*"))

    with pytest.raises(ConflictError):
        table.run(backup_to(place, "copy.lance"), progress=overtake)

    assert set(Path(place.uri("copy.lance")).rglob("*")) == before
    assert other.run(backup_to(place, "copy.lance")).outcome is JobOutcome.NOTHING_TO_DO


def test_damaged_copy_is_not_called_a_backup(tmp_path: Path) -> None:
    """Negative control of the proof: a file that changed before the proof is found by it."""
    place = make_place("no links", tmp_path, None)
    table = make_table(place)
    target = Path(place.uri("copy.lance"))

    def damage() -> None:
        entry = max(target.glob("_mem_wal/*/wal/*.lance"), key=lambda each: each.stat().st_size)
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)

    failpoints = ArmedFailpoints().arm(COPY_PUBLISHED, damage)
    with pytest.raises(CorruptionError):
        copy_table(JobContext(table.opened, failpoints=failpoints), backup_to(place, "copy.lance"), with_same_identity)


def test_frozen_table_can_be_backed_up_and_its_copy_is_frozen_too(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    table.freeze("look first", by="ann")
    assert place.open("people.lance").run(backup_to(place, "copy.lance")).outcome is JobOutcome.DONE
    with pytest.raises(FrozenError):
        place.open("people.lance").run(CloneRequest(target=place.uri("clone.lance")))
    copy = place.open("copy.lance")
    assert [each.cause.value for each in copy.opened.freezes.active()] == ["by-hand"]
    blocked = copy.run(RelocateRequest())
    assert blocked.outcome is JobOutcome.BLOCKED
    assert "by-hand" in blocked.why()


def test_indexes_region_snapshot_and_old_versions(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    uri = make_table(place).uri
    lance.dataset(uri).create_scalar_index("name", "BTREE")
    table = Table.open(uri, settings=Settings(index=IndexSettings(inline_snapshot_threshold=0)))
    table.run(SnapshotRequest(force=True))
    for request, name in ((BackupRequest, "copy.lance"), (CloneRequest, "clone.lance")):
        table.run(request(target=place.uri(name)))
        copy = place.open(name)
        dataset = lance.dataset(copy.uri)
        assert [each["version"] for each in dataset.versions()] == [table.base.dataset().version]
        assert "ScalarIndexQuery" in dataset.scanner(filter="name = 'base'").explain_plan()
        assert dataset.to_table(filter="name = 'base'")["id"].to_pylist() == [1, 3]
        entry = copy.base.state().entry
        assert entry is not None
        assert Path(copy.uri, "_indices", str(entry.index_id), "index.lance").is_file()


@pytest.mark.parametrize("client", [PYLANCE, LANCEDB], ids=lambda each: each.name)
def test_tables_of_other_clients(tmp_path: Path, client: Client) -> None:
    uri = str(tmp_path / "people.lance")
    client.make(uri)
    client.write(uri, (1, 2), "first")
    client.write(uri, (2, 3), "second")
    table = Table.open(uri)
    right = seen(table)
    assert set(right) == {1, 2, 3}
    for request, name in ((BackupRequest, "copy"), (CloneRequest, "clone")):
        assert table.run(request(target=str(tmp_path / f"{name}.lance"))).outcome is JobOutcome.DONE
    shutil.rmtree(uri)
    Table.open(str(tmp_path / "copy.lance")).run(RelocateRequest())
    for name in ("copy", "clone"):
        copy = Table.open(str(tmp_path / f"{name}.lance"))
        assert seen(copy) == right
        client.write(copy.uri, (4,), "later")
        assert seen(copy) == right | {4: "later"}
        copy.run(MergeRequest())
        assert lancedb_table(copy.uri).count_rows() >= 3
        assert seen(copy) == right | {4: "later"}


def test_merged_flushed_memtable_that_is_gone_is_left_out(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    merged = table.base.require_mem_wal().merged_generations
    [(manifest, recorded)] = [
        (each, generation)
        for each in table.opened.manifests.load_many(table.opened.manifests.region_ids())
        for generation in each.flushed_generations
        if generation.generation <= merged.get(each.region_id, 0)
    ][:1]
    table.base.store.delete_directory(generation_path(manifest.region_id, recorded.path))
    assert table.run(backup_to(place, "copy.lance")).outcome is JobOutcome.DONE
    assert seen(place.open("copy.lance")) == RIGHT
    assert os.path.exists(place.uri(f"copy.lance/{JOURNAL_DIRECTORY}"))


def test_table_that_lacks_a_merged_region_is_refused_at_once_and_not_told_to_try_again(tmp_path: Path) -> None:
    """A deep clone of Lance has the progress of regions that stayed behind; no other moment of it will have them."""
    original, clone = str(tmp_path / "original.lance"), str(tmp_path / "clone.lance")
    PYLANCE.make(original)
    PYLANCE.write(original, [1], "merged")
    assert Table.open(original).run(MergeRequest()).outcome is JobOutcome.DONE
    lance.dataset(original).deep_clone(clone, lance.dataset(original).version)

    with pytest.raises(DamagedError, match="directory is gone; the merge progress of the table names it"):
        Table.open(clone).run(BackupRequest(target=str(tmp_path / "copy.lance")))
