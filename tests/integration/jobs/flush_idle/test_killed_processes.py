"""Rows of processes that were killed: LanceDB's client, pylance's writer, ours, and the job itself (S9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import lance
import lancedb
import pyarrow as pa
import pytest

from memwal_core.failpoints import Failpoint
from memwal_core.flushed.write.directory import FLUSH_COMMIT
from memwal_core.flushed.write.sidecars import FLUSH_KEYS
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.flush_idle.plan import IdleReason
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.flush_idle.run import FLUSH_DECIDED, FLUSH_PLANNED, flush_idle_regions
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region import RegionStatus
from memwal_core.settings import DAY_S, FlushSettings, Settings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from memwal_core.writer.flush_region import REGION_CLAIMED, REGION_FLUSHED
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints
from testkit.processes.start import LONGEST_WAIT_S, start_process
from testkit.s3_server import s3_server
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import create_region

HOUR = 3600.0
WEEK = 7 * DAY_S
IMPATIENT = Settings(flush=FlushSettings(min_age_s=0, quiet_s=0.001), writer=WriterSettings(max_memtable_age_s=0.001))
NATIVE = native_region_id(1)
ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def table_at(uri: str, after_s: float, options: Mapping[str, str] | None = None) -> Table:
    clock = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=after_s))
    return Table.open(uri, storage_options=options, settings=Settings(), clock=clock)


def flush(uri: str, after_s: float, options: Mapping[str, str] | None = None) -> FlushReport:
    report = table_at(uri, after_s, options).run(FlushRequest(due_only=True))
    assert isinstance(report, FlushReport)
    return report


def merged_rows(uri: str, options: Mapping[str, str] | None = None) -> dict[int, str]:
    Table.open(uri, storage_options=options).run(MergeRequest())
    dataset = lance.dataset(uri, storage_options=dict(options or {}) or None)
    found = dataset.to_table(columns=["id", "name"]).to_pydict()
    assert len(found["id"]) == len(set(found["id"]))
    return dict(sorted(zip(found["id"], found["name"], strict=True)))


def run_until_killed(target, *arguments: object) -> list[object]:
    """Run a function in a process that kills itself; return what it said before."""
    process, ours = start_process(target, *arguments)
    said = []
    try:
        while ours.poll(LONGEST_WAIT_S):
            said.append(ours.recv())
    except EOFError:
        pass
    process.join(LONGEST_WAIT_S)
    assert process.exitcode == -signal.SIGKILL
    return said


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lancedb_rows(*ids: int, name: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=ROWS)


def lancedb_upsert(table, rows: pa.Table) -> None:
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def write_with_lancedb(root: str, connection: Connection) -> None:
    table = lancedb.connect(root).create_table("people", lancedb_rows(1, 2, name="base"))
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(lancedb.LsmWriteSpec.unsharded())
    lancedb_upsert(table, lancedb_rows(2, 3, name="a"))
    lancedb_upsert(table, lancedb_rows(4, name="b"))
    connection.send("wrote")
    die()


def test_rows_of_a_killed_lancedb_client_reach_the_base_table_and_its_successor_goes_on(tmp_path: Path) -> None:
    assert run_until_killed(write_with_lancedb, str(tmp_path)) == ["wrote"]
    uri = str(tmp_path / "people.lance")
    assert merged_rows(uri) == {1: "base", 2: "base"}

    early = flush(uri, WEEK - 60)
    done = flush(uri, WEEK + 60)

    assert [each.reason for each in early.plan.regions] == [IdleReason.ALIVE]
    assert [each.reason for each in done.plan.regions] == [IdleReason.SILENT]
    assert merged_rows(uri) == {1: "base", 2: "a", 3: "a", 4: "b"}
    reopened = lancedb.connect(str(tmp_path)).open_table("people")
    lancedb_upsert(reopened, lancedb_rows(4, 5, name="later"))
    shown = reopened.to_arrow().to_pydict()
    reopened.close_lsm_writers()
    expected = {1: "base", 2: "a", 3: "a", 4: "later", 5: "later"}
    assert dict(sorted(zip(shown["id"], shown["name"], strict=True))) == expected
    assert merged_rows(uri) == expected


def flush_and_die(uri: str, place: Failpoint, nth: int, _connection: Connection) -> None:
    points = ArmedFailpoints().arm(place, die, nth=nth)
    opened = table_at(uri, WEEK + 60).opened
    flush_idle_regions(JobContext(opened, failpoints=points), FlushRequest())


PLACES = [
    (FLUSH_PLANNED, 1),
    (FLUSH_DECIDED, 2),
    (REGION_CLAIMED, 1),
    (REGION_CLAIMED, 3),
    (FLUSH_COMMIT, 1),
    (FLUSH_COMMIT.done, 1),
    (FLUSH_KEYS, 2),
    (REGION_FLUSHED, 1),
    (REGION_FLUSHED, 3),
]


@pytest.mark.parametrize(("place", "nth"), PLACES)
def test_job_killed_at_each_place_loses_nothing_and_the_next_one_finishes(tmp_path: Path, place, nth) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(0, name="base"))
    expected = {0: "base"}
    for number, status in enumerate([RegionStatus.SEALED, RegionStatus.ACTIVE], start=1):
        writer = RegionWriter.open(table, create_region(table, status))
        writer.put(people(number, 10 + number, name="old"))
        writer.put(people(number, name="ours"))
        expected |= {number: "ours", 10 + number: "old"}
    native = lance.dataset(table.uri).mem_wal_writer(str(NATIVE), max_wal_flush_interval_ms=1)
    native.put(people(3, name="native"))
    expected |= {3: "native"}

    assert run_until_killed(flush_and_die, table.uri, place, nth) == []
    report = flush(table.uri, WEEK + 3 * HOUR)

    assert report.outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
    assert (report.failures, report.unflushable) == ({}, {})
    assert merged_rows(table.uri) == expected
    assert flush(table.uri, WEEK + 9 * HOUR).outcome is JobOutcome.NOTHING_TO_DO


def write_and_die(uri: str, region: RegionId, key: int, options: Mapping[str, str], connection: Connection) -> None:
    table = OpenTable.at(uri, storage_options=options)
    RegionWriter.open(table.base, region).put(people(key, name="a"))
    connection.send("wrote")
    die()


@pytest.mark.s3
def test_on_s3_rows_of_a_killed_writer_reach_the_base_table() -> None:
    with s3_server() as server:
        options = dict(server.storage_options)
        uri = server.uri("bucket/people.lance")
        table = make_people_table(uri, rows=people(0, name="base"), storage_options=options)
        regions = [create_region(table, status) for status in (RegionStatus.SEALED, RegionStatus.ACTIVE)]
        for key, region in enumerate(regions, start=1):
            assert run_until_killed(write_and_die, uri, region, key, options) == ["wrote"]

        assert flush(uri, 0, options).outcome is JobOutcome.NOTHING_TO_DO
        # The store tells for how long a writer is silent, and a clock that is ahead of it does not.
        report = Table.open(uri, storage_options=options, settings=IMPATIENT).run(FlushRequest(due_only=True))

        assert isinstance(report, FlushReport)
        assert [each.region_id for each in report.flushed] == sorted(regions)
        assert merged_rows(uri, options) == {0: "base", 1: "a", 2: "a"}
