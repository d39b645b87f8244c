"""Copies that are made while a writer writes, all jobs run, and another program removes old versions (S1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import ConflictError, DamagedError
from memwal_core.jobs.backup import pin
from memwal_core.jobs.backup.pin import Pinner
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region.census import Census, CensusTaker
from memwal_core.settings import CompactSettings, GcSettings, Settings, WalCollection
from memwal_core.table import Table
from testkit.tables.people import PEOPLE, make_people_table
from testkit.tables.regions import writer_settings

KEYS = 12
LINKED = writer_settings(pack_below_bytes=0)
EAGER = Settings(
    storage=LINKED.storage,
    writer=LINKED.writer,
    gc=GcSettings(
        grace_s=0,
        collect_wal=WalCollection.ALL,
        wal_min_age_s=60,
        orphan_age_s=3600,
        manifest_retention=2,
        manifest_min_age_s=0,
        open_writer_s=0,
        allow_unsafe_retention=True,
    ),
    compact=CompactSettings(min_fragments=2),
)


def rows_of(number: float) -> pa.Table:
    """Return one row per key."""
    columns = {"id": list(range(KEYS)), "name": ["x"] * KEYS, "score": [float(number)] * KEYS}
    return pa.table(columns, schema=PEOPLE)


@dataclass
class Activity:
    """A table that is written and maintained by threads; each put writes one number to all keys.

    Attributes:
        uri: The table.
        sent: The number that was written last.
        acknowledged: The number that was acknowledged last.
        failed: What ended a thread.
    """

    uri: str
    sent: int = 0
    acknowledged: int = 0
    failed: list[BaseException] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        """Open a writer, put seven times, and flush."""
        with Table.open(self.uri, settings=EAGER).writer(takeover="fence") as writer:
            for _ in range(7):
                self.sent += 1
                writer.put(rows_of(self.sent))
                self.acknowledged = self.sent
            writer.flush()

    def maintain(self) -> None:
        """Run the jobs that move and delete rows, and remove versions as another program does."""
        table = Table.open(self.uri, settings=EAGER)
        for request in (MergeRequest(), GcRequest(dry_run=False), CompactRequest(force=True)):
            try:
                table.run(request)
            except ConflictError:
                continue  # A copy holds its lease.
        lance.dataset(self.uri).cleanup_old_versions(older_than=timedelta(seconds=2))

    def repeat(self, act: Callable[[], object]) -> None:
        """Do something until the end."""
        try:
            while not self.ended.is_set():
                act()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failed.append(error)


@contextmanager
def activity(uri: str) -> Iterator[Activity]:
    make_people_table(uri, buckets=3, settings=EAGER)
    found = Activity(uri)
    found.write()
    threads = [threading.Thread(target=found.repeat, args=(each,)) for each in (found.write, found.maintain)]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        found.ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("copies", [2, pytest.param(40, marks=pytest.mark.long)])
def test_copies_beside_a_writer_and_jobs_have_every_row_that_was_acknowledged(tmp_path: Path, copies: int) -> None:
    with activity(str(tmp_path / "people.lance")) as running:
        for number in range(copies):
            target = str(tmp_path / f"copy{number}.lance")
            request = (BackupRequest if number % 2 else CloneRequest)(target=target)
            before = running.acknowledged
            assert Table.open(running.uri, settings=EAGER).run(request).outcome is JobOutcome.DONE
            after = running.sent
            assert running.failed == []
            rows = Table.open(target, consistency="durable").scan().to_arrow()
            assert sorted(rows["id"].to_pylist()) == list(range(KEYS))
            assert all(before <= score <= after for score in rows["score"].to_pylist()), (before, after)
            require_usable(target)
    assert running.failed == []
    assert running.acknowledged > 7


def _between_reads(monkeypatch: pytest.MonkeyPatch, running: Activity, request: JobRequest) -> list[Census]:
    """Have rows written and a job run once regions were listed for the first time; return what is listed."""
    looks: list[Census] = []

    def take(taker: CensusTaker, *given: Any) -> Census:
        census = original(taker, *given)
        looks.append(census)
        if len(looks) == 1:
            running.write()
            Table.open(running.uri, settings=EAGER).run(request)
        return census

    original = CensusTaker.take
    monkeypatch.setattr(CensusTaker, "take", take)
    return looks


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked", "negative control"])
def test_merge_between_the_manifests_and_the_base_table_leads_to_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """Otherwise the copy's next generation has a number that counts as merged, and its rows are lost."""
    running = Activity(str(tmp_path / "people.lance"))
    make_people_table(running.uri, buckets=3, settings=EAGER)
    running.write()
    looks = _between_reads(monkeypatch, running, MergeRequest())
    if not is_checked:
        monkeypatch.setattr(pin, "out_of_step", lambda *_: iter(()))
    target = str(tmp_path / "copy.lance")
    moment = Pinner(Table.open(running.uri, settings=EAGER).opened).pin()
    assert len(looks) >= (2 if is_checked else 1)
    monkeypatch.undo()
    merged = moment.state.require_details().merged_generations
    ahead = [each for each in moment.regions if merged[each.manifest.region_id] >= each.manifest.current_generation]
    assert bool(ahead) != is_checked
    assert Table.open(running.uri, settings=EAGER).run(BackupRequest(target=target)).outcome is JobOutcome.DONE
    require_usable(target)


@pytest.mark.parametrize("is_checked", [True, False], ids=["checked", "negative control"])
def test_region_in_the_snapshot_of_the_version_that_was_not_listed_leads_to_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """Otherwise the copy names a region that it does not have, and nobody can read it."""
    running = Activity(str(tmp_path / "people.lance"))
    make_people_table(running.uri, buckets=3, settings=EAGER)
    _between_reads(monkeypatch, running, SnapshotRequest())
    if not is_checked:
        monkeypatch.setattr(pin, "named_regions", lambda *_: ((), ()))
    target = str(tmp_path / "copy.lance")
    assert Table.open(running.uri, settings=EAGER).run(BackupRequest(target=target)).outcome is JobOutcome.DONE
    monkeypatch.undo()
    if not is_checked:
        with pytest.raises(DamagedError, match="the region snapshot names it"):
            Table.open(target).scan().to_arrow()
        return
    assert Table.open(target).scan().to_arrow().num_rows == KEYS
    require_usable(target)


def require_usable(uri: str) -> None:
    """Write to a copy and merge everything; what is written last wins."""
    copy = Table.open(uri, settings=EAGER)
    copy.run(RelocateRequest())
    with copy.writer(takeover="fence") as writer:
        writer.put(rows_of(-1))
        writer.flush()
    assert Table.open(uri, settings=EAGER).run(MergeRequest()).outcome is JobOutcome.DONE
    assert set(lance.dataset(uri).to_table()["score"].to_pylist()) == {-1.0}


@pytest.mark.parametrize("is_checked", [True, False])
def test_moment_never_has_wal_of_a_writer_that_its_manifest_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_checked: bool
) -> None:
    """Otherwise the first writer of the copy meets entries of an epoch above its own, and is fenced."""
    running = Activity(str(tmp_path / "people.lance"))
    make_people_table(running.uri, buckets=3, settings=EAGER)
    running.write()
    original, successors = CensusTaker.take, []

    def take(taker: CensusTaker, *given: Any) -> Census:
        census = original(taker, *given)
        for number in (1, 2):
            writer = Table.open(running.uri, settings=EAGER).writer(takeover="fence")
            successors.append(writer)
            writer.put(rows_of(number))
        return census

    monkeypatch.setattr(CensusTaker, "take", take)
    if not is_checked:
        monkeypatch.setattr(pin, "was_claimed_since", lambda *_: False)
    moment = Pinner(Table.open(running.uri, settings=EAGER).opened).pin()
    monkeypatch.undo()
    manifests = Table.open(running.uri, settings=EAGER).opened.manifests
    behind = [
        each
        for each in moment.regions
        if each.wal_entries and each.manifest.writer_epoch < manifests.load(each.manifest.region_id).writer_epoch
    ]
    assert len(successors) == 2  # One look: a table whose regions are claimed all the time has a moment, too.
    assert bool(behind) != is_checked
