"""Copies that are killed, and copies that meet jobs and programs that delete (S1)."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.clock import SystemClock
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import JOURNAL_DIRECTORY
from memwal_core.jobs.backup import copying
from memwal_core.jobs.backup import run as places
from memwal_core.jobs.backup.identity import with_own_identity, with_same_identity
from memwal_core.jobs.backup.request import BackupRequest, CopyRequest
from memwal_core.jobs.backup.run import copy_table
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.storage import open_store
from memwal_core.storage.local import LocalStore
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.tables.garbage import drop_old_versions
from testkit.tables.people import people
from tests.integration.jobs.copies.places import RIGHT, flushed_and_merged, make_place, make_table, seen

PLACES = [value for name, value in vars(places).items() if name.startswith("COPY_")]
KINDS = {BackupRequest: with_same_identity, CloneRequest: with_own_identity}


@pytest.mark.parametrize("failpoint", PLACES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.info.name)
def test_copy_killed_at_a_place_is_finished_by_the_next(
    tmp_path: Path, kind: type[CopyRequest], failpoint: Failpoint
) -> None:
    place = make_place("no links", tmp_path, None)
    table = make_table(place)
    request = kind(target=place.uri("copy.lance"))
    nth = 2 if failpoint == places.COPY_FILES else 1
    failpoints = ArmedFailpoints().arm(failpoint, nth=nth)
    settings = table.opened.settings.model_copy(
        update={"storage": table.opened.settings.storage.model_copy(update={"concurrency": 1})}
    )
    opened = Table.open(table.uri, settings=settings).opened
    with pytest.raises(SimulatedCrash):
        copy_table(JobContext(opened, holder="one", failpoints=failpoints), request, KINDS[kind])
    assert failpoints.hits[failpoint] == nth
    is_table = Path(place.uri("copy.lance"), "_versions").exists()
    assert is_table == (failpoint in (places.COPY_PUBLISHED, places.COPY_PROVEN))

    assert table.run(request, holder="one").outcome is JobOutcome.DONE
    assert table.run(request).outcome is JobOutcome.NOTHING_TO_DO
    copy = place.open("copy.lance")
    assert seen(copy) == RIGHT
    copy.run(RelocateRequest())
    assert flushed_and_merged(place.open("copy.lance")) == RIGHT | {2: "merged"}


@pytest.mark.parametrize("nth", [1, 2], ids=["moment", "completion"])
def test_power_cut_that_tears_the_journal_leaves_a_copy_that_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """S5: a name of which no byte reached the disk is what a cut leaves of an object that replaces another."""
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    put, tears = LocalStore.put, itertools.count(1)

    def torn(self: LocalStore, path: str, data: bytes) -> None:
        is_cut = path.startswith(JOURNAL_DIRECTORY) and next(tears) == nth
        put(self, path, b"" if is_cut else data)
        if is_cut:
            raise SimulatedCrash(path)

    request = BackupRequest(target=place.uri("copy.lance"))
    monkeypatch.setattr(LocalStore, "put", torn)
    with pytest.raises(SimulatedCrash):
        copy_table(JobContext(table.opened, holder="one"), request, with_same_identity)
    monkeypatch.undo()
    assert table.run(request, holder="one").outcome in (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)
    assert seen(place.open("copy.lance")) == RIGHT


def die_before_the_proof(table: Table, request: CopyRequest) -> None:
    """Copy, and die when the copy has become a table."""
    failpoints = ArmedFailpoints().arm(places.COPY_PUBLISHED)
    with pytest.raises(SimulatedCrash):
        copy_table(JobContext(table.opened, holder="one", failpoints=failpoints), request, KINDS[type(request)])


def test_copy_that_became_a_table_is_proven_and_not_written_again(tmp_path: Path) -> None:
    """A cut, or a writer of the copy, would meet documents that are replaced."""
    place = make_place("no links", tmp_path, None)
    table = make_table(place)
    request = BackupRequest(target=place.uri("copy.lance"))
    die_before_the_proof(table, request)
    files = [each for each in Path(request.target).rglob("*") if each.is_file() and JOURNAL_DIRECTORY not in each.parts]
    written = {each: each.stat().st_mtime_ns for each in files}

    assert table.run(request, holder="one").outcome is JobOutcome.DONE

    assert {each: each.stat().st_mtime_ns for each in files} == written


@pytest.mark.parametrize("old_version", ["kept", "removed"])
def test_clone_that_was_used_before_it_was_proven_is_left_as_it_is(tmp_path: Path, old_version: str) -> None:
    """The error said to empty the target, and documents of the first moment came back into it."""
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    request = CloneRequest(target=place.uri("clone.lance"))
    die_before_the_proof(table, request)
    with place.open("clone.lance").writer() as writer:
        writer.put(people(60, name="of the clone"))
    used = flushed_and_merged(place.open("clone.lance"))
    if old_version == "removed":
        drop_old_versions(request.target)
    written = {each: each.stat().st_mtime_ns for each in Path(request.target).rglob("*") if each.is_file()}

    with pytest.raises(InvalidRequestError, match="changed since") as caught:
        table.run(request, holder="one")

    assert "empty" not in caught.value.remedy
    assert {each: each.stat().st_mtime_ns for each in Path(request.target).rglob("*") if each.is_file()} == written
    assert flushed_and_merged(place.open("clone.lance")) == used
    assert used[60] == "of the clone"


_KILLED = """
import os, signal, sys
from memwal_core.jobs.backup.identity import with_same_identity
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.backup.run import COPY_FILES, copy_table
from memwal_core.jobs.context import JobContext
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints
table = Table.open(sys.argv[1], settings=Settings(storage=StorageSettings(concurrency=2)))
die = ArmedFailpoints().arm(COPY_FILES, lambda: os.kill(os.getpid(), signal.SIGKILL), nth=3)
context = JobContext(table.opened, holder="cron", failpoints=die)
copy_table(context, BackupRequest(target=sys.argv[2]), with_same_identity)
"""


def test_killed_process_is_followed_by_one_that_copies_the_rest(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    target = place.uri("copy.lance")
    ended = subprocess.run([sys.executable, "-c", _KILLED, table.uri, target], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    there = {each.path for each in open_store(target).list_objects("") if not each.path.startswith(JOURNAL_DIRECTORY)}
    assert there
    written = {path: Path(target, path).stat().st_mtime_ns for path in there}
    assert table.run(BackupRequest(target=target), holder="cron").outcome is JobOutcome.DONE
    assert {path: Path(target, path).stat().st_mtime_ns for path in there} == written
    assert seen(place.open("copy.lance")) == RIGHT


def test_half_done_copy_whose_moment_is_gone_takes_another_and_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    request = BackupRequest(target=place.uri("copy.lance"))
    failpoints = ArmedFailpoints().arm(places.COPY_DOCUMENTS)
    with pytest.raises(SimulatedCrash):
        copy_table(JobContext(table.opened, holder="one", failpoints=failpoints), request, with_same_identity)
    lost = next(Path(place.uri("copy.lance")).glob("data/*.lance"))  # As if it had not been copied yet.
    lost.unlink()
    flushed_and_merged(table)
    lance.dataset(table.uri).optimize.compact_files()
    Path(table.uri, "data", lost.name).unlink()
    right = seen(table)

    assert table.run(request, holder="one").outcome is JobOutcome.DONE

    copy = place.open("copy.lance")
    assert seen(copy) == right
    assert len(list(Path(copy.uri, "_versions").glob("*.manifest"))) == 1
    live = {f"data/{file.path}" for each in copy.base.dataset().get_fragments() for file in each.metadata.files}
    assert {f"data/{each.name}" for each in Path(copy.uri, "data").iterdir()} == live


def test_deletions_of_another_program_while_it_copies_lead_to_another_moment(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)

    def rewrite() -> None:
        lance.dataset(table.uri).optimize.compact_files()
        lance.dataset(table.uri).delete("id = 3")
        lance.dataset(table.uri).optimize.compact_files(materialize_deletions_threshold=0)
        lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    failpoints = ArmedFailpoints().arm(places.COPY_FILES, rewrite)
    request = BackupRequest(target=place.uri("copy.lance"))
    report = copy_table(JobContext(table.opened, failpoints=failpoints), request, with_same_identity)
    assert report.outcome is JobOutcome.DONE
    assert failpoints.hits[places.COPY_PINNED] == 2
    assert seen(place.open("copy.lance")) == {key: name for key, name in RIGHT.items() if key != 3}


def test_collection_and_compaction_wait_while_a_copy_is_made(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    refused: list[str] = []

    def collect() -> None:
        for request in (GcRequest(dry_run=False), CompactRequest(force=True)):
            with pytest.raises(ConflictError) as error:
                place.open("people.lance").run(request)
            refused.append(error.value.what)
        place.open("people.lance").run(MergeRequest())  # Merges go on.

    failpoints = ArmedFailpoints().arm(places.COPY_PUBLISHED, collect)
    request = BackupRequest(target=place.uri("copy.lance"))
    copy_table(JobContext(table.opened, failpoints=failpoints), request, with_same_identity)
    assert refused == ["another process holds the lease of this job"] * 2
    assert seen(place.open("copy.lance")) == RIGHT
    assert place.open("people.lance").run(GcRequest(dry_run=False)).outcome in tuple(JobOutcome)


def test_copy_of_large_files_keeps_its_leases_while_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise garbage is collected beside a copy that works, and the copy ends as if it had been replaced."""
    clock = ManualClock(SystemClock().now())
    place = make_place("links", tmp_path, None)
    make_table(place)
    table = place.open("people.lance", clock)
    monkeypatch.setattr(copying, "_SMALL_BYTES", 64)
    monkeypatch.setattr(copying, "_PART_BYTES", 128)
    read, held = LocalStore.get_range, []

    def slow(store: LocalStore, path: str, start: int, length: int) -> bytes:
        if length == 128 and path.startswith("data/"):
            clock.advance(table.opened.settings.lease.renew_after_s)
            rival = table.opened.leases.in_other_hands(JobKey("gc"), "somebody else")
            held.append(rival is not None)
        return read(store, path, start, length)

    monkeypatch.setattr(LocalStore, "get_range", slow)
    assert table.run(BackupRequest(target=place.uri("copy.lance"))).outcome is JobOutcome.DONE
    assert len(held) * table.opened.settings.lease.renew_after_s > table.opened.settings.lease.stall_s
    assert all(held)
