"""Copies that are killed, that lose the race with deletions, and that run beside writers and jobs (S1)."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import ConflictError
from memwal_core.failpoints import Failpoint
from memwal_core.jobs.backup import run as places
from memwal_core.jobs.backup.identity import with_own_identity, with_same_identity
from memwal_core.jobs.backup.request import BackupRequest, CopyRequest
from memwal_core.jobs.backup.run import JOURNAL_PATH, CopyContext, copy_table
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.settings import CompactSettings, GcSettings, Settings, WalCollection
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import writer_settings
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
        copy_table(CopyContext(opened, holder="one", failpoints=failpoints), request, KINDS[kind])
    assert failpoints.hits[failpoint] == nth
    is_table = Path(place.uri("copy.lance"), "_versions").exists()
    assert is_table == (failpoint in (places.COPY_PUBLISHED, places.COPY_PROVEN))

    assert table.run(request, holder="one").outcome is JobOutcome.DONE
    assert table.run(request).outcome is JobOutcome.NOTHING_TO_DO
    copy = place.open("copy.lance")
    assert seen(copy) == RIGHT
    copy.run(RelocateRequest())
    assert flushed_and_merged(place.open("copy.lance")) == RIGHT | {2: "merged"}


_KILLED = """
import os, signal, sys
from memwal_core.jobs.backup.identity import with_same_identity
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.backup.run import COPY_FILES, CopyContext, copy_table
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table
from testkit.faults.failpoints import ArmedFailpoints
table = Table.open(sys.argv[1], settings=Settings(storage=StorageSettings(concurrency=2)))
die = ArmedFailpoints().arm(COPY_FILES, lambda: os.kill(os.getpid(), signal.SIGKILL), nth=3)
copy_table(CopyContext(table.opened, holder="cron", failpoints=die), BackupRequest(target=sys.argv[2]), with_same_identity)
"""


def test_killed_process_is_followed_by_one_that_copies_the_rest(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    table = make_table(place)
    target = place.uri("copy.lance")
    ended = subprocess.run([sys.executable, "-c", _KILLED, table.uri, target], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    there = {each.path for each in open_store(target).list_objects("") if each.path != JOURNAL_PATH}
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
        copy_table(CopyContext(table.opened, holder="one", failpoints=failpoints), request, with_same_identity)
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
    report = copy_table(CopyContext(table.opened, failpoints=failpoints), request, with_same_identity)
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
    copy_table(CopyContext(table.opened, failpoints=failpoints), request, with_same_identity)
    assert refused == ["another process holds the lease of this job"] * 2
    assert seen(place.open("copy.lance")) == RIGHT
    assert place.open("people.lance").run(GcRequest(dry_run=False)).outcome in tuple(JobOutcome)


KEYS = 12
EAGER = Settings(
    storage=writer_settings().storage,
    writer=writer_settings(pack_below_bytes=0).writer,
    gc=GcSettings(
        grace_s=0, collect_wal=WalCollection.ALL, wal_min_age_s=0.001, orphan_age_s=3600, manifest_retention=2,
        manifest_min_age_s=0, allow_unsafe_retention=True,
    ),
    compact=CompactSettings(min_fragments=2, retention_s=0, keep_versions=1),
)  # fmt: skip


@pytest.mark.parametrize("copies", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_copies_beside_a_writer_and_all_jobs_have_every_row_that_was_acknowledged(tmp_path: Path, copies: int) -> None:
    """Each put writes one number to all keys; every key of a copy has at least the number acknowledged before it."""
    uri = str(tmp_path / "people.lance")
    make_people_table(uri, buckets=3, settings=EAGER)
    ended, failed = threading.Event(), list[BaseException]()
    acknowledged, sent = [0], [0]

    def forever(act: Callable[[], object]) -> threading.Thread:
        def loop() -> None:
            try:
                while not ended.is_set():
                    try:
                        act()
                    except ConflictError:
                        continue
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failed.append(error)
                ended.set()

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    def maintain() -> None:
        table = Table.open(uri, settings=EAGER)
        for request in (MergeRequest(), GcRequest(dry_run=False), CompactRequest(force=True, remove_versions=True)):
            if not ended.is_set():
                table.run(request)

    def write() -> None:
        with Table.open(uri, settings=EAGER).writer(takeover="fence") as writer:
            for _ in range(7):
                if ended.is_set():
                    return
                sent[0] += 1
                writer.put(pa.table({**_ROWS, "score": [float(sent[0])] * KEYS}, schema=people().schema))
                acknowledged[0] = sent[0]
            writer.flush()

    threads = [forever(write), forever(maintain)]
    try:
        for number in range(copies):
            before = acknowledged[0]
            target = str(tmp_path / f"copy{number}.lance")
            request = (BackupRequest if number % 2 else CloneRequest)(target=target)
            assert Table.open(uri, settings=EAGER).run(request).outcome is JobOutcome.DONE
            after = sent[0]
            assert failed == []
            copy = Table.open(target, settings=EAGER, consistency="durable")
            rows = copy.scan().to_arrow()
            if before:
                assert sorted(rows["id"].to_pylist()) == list(range(KEYS))
                assert all(before <= score <= after for score in rows["score"].to_pylist()), (before, after)
            copy.run(RelocateRequest())
            with copy.writer(takeover="fence") as writer:
                writer.put(pa.table({**_ROWS, "score": [-1.0] * KEYS}, schema=people().schema))
                writer.flush()
            Table.open(target, settings=EAGER).run(MergeRequest())
            assert set(lance.dataset(target).to_table()["score"].to_pylist()) == {-1.0}
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert acknowledged[0] > 7


_ROWS = {"id": list(range(KEYS)), "name": ["x"] * KEYS}
