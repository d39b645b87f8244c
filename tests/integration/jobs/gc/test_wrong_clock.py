"""Jobs run on a machine whose clock is a month ahead: ages are told by the store's clock all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from memwal_core.base_table import BaseTable, Sources, list_versions
from memwal_core.clock import SystemClock
from memwal_core.errors import FencedError
from memwal_core.jobs.compact import job as compact_job
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc import job as gc_job
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import CompactSettings, GcSettings, Settings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.region_writer import RegionWriter
from memwal_core.writer.table_writer import TableWriter
from testkit.rng import seeded_rng
from testkit.s3_server import S3Server, s3_server
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import OLD_S, drop_old_versions, only_region
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.s3

SETTINGS = Settings(
    writer=WriterSettings(epoch_check_interval_s=600.0),
    gc=GcSettings(grace_s=1),
    compact=CompactSettings(keep_versions=1),
)


class _Ahead(SystemClock):
    """A month ahead; it goes on, as the store's does."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=OLD_S)


class _Behind(SystemClock):
    """Two seconds behind, as clocks of one network may be."""

    def now(self) -> datetime:
        return super().now() - timedelta(seconds=2)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def table(s3: S3Server) -> BaseTable:
    """A table with one region."""
    options = s3.storage_options
    made = make_people_table(s3.uri("bucket/t.lance"), rows=people(1, 2), buckets=1, storage_options=options)
    with TableWriter.open(made) as writer:
        writer.put(people(3))
    return made


@pytest.fixture
def ahead(s3: S3Server, table: BaseTable) -> Table:
    """The table as a machine opens it whose clock is a month ahead."""
    return opened_at(table, s3, _Ahead())


def opened_at(table: BaseTable, s3: S3Server, clock: SystemClock) -> Table:
    """Open the table on a machine with a clock of its own."""
    sources = Sources(clock, seeded_rng(1))
    opened = BaseTable.open(table.uri, storage_options=s3.storage_options, settings=SETTINGS, sources=sources)
    return Table(OpenTable.of(opened))


def stall_through_a_replacement(table: BaseTable, ahead: Table) -> RegionWriter:
    """Let a writer stall while a successor writes and flushes, and the machine ahead maintains the table."""
    region = only_region(ahead)
    stalled = RegionWriter.open(table.with_settings(SETTINGS), region)
    stalled.put(people(70, name="first"))
    successor = RegionWriter.open(table.with_settings(SETTINGS), region)
    for number in (80, 81):
        successor.put(people(number, name="successor"))
    successor.flush()
    for _ in range(3):
        ahead.run(MaintainRequest())
    return stalled


def test_clock_that_is_ahead_frees_no_place_of_a_stalled_writer(table, ahead):
    stalled = stall_through_a_replacement(table, ahead)

    with pytest.raises(FencedError):
        stalled.put(people(99, name="late"))
    assert {70, 80, 81} <= set(lsm_view(table))


def test_without_the_stores_time_the_stalled_writer_acknowledges_a_row_that_is_lost(table, ahead, monkeypatch):
    """Negative control."""
    for module in (gc_job, compact_job):
        monkeypatch.setattr(module, "ahead_of_store", lambda *_: timedelta())

    stalled = stall_through_a_replacement(table, ahead)

    assert stalled.put(people(99, name="late")).durable
    assert 99 not in lsm_view(table)


def test_clock_that_is_ahead_removes_no_young_version(table, ahead):
    before = [each.version for each in list_versions(table)]

    ahead.run(CompactRequest(remove_versions=True))

    assert set(before) <= {each.version for each in list_versions(table)}


def test_without_the_stores_time_young_versions_go(table, ahead, monkeypatch):
    """Negative control."""
    monkeypatch.setattr(compact_job, "ahead_of_store", lambda *_: timedelta())

    report = ahead.run(CompactRequest(remove_versions=True))

    assert report.cleanup.result.versions > 0


def test_collection_says_that_the_clock_is_ahead_and_waits_for_its_grace(s3, table, ahead, caplog):
    with TableWriter.open(table) as writer:
        writer.put(people(4))
        writer.flush()
    with caplog.at_level(logging.WARNING):
        ahead.run(MergeRequest())
        drop_old_versions(table.uri, s3.storage_options)
        report = ahead.run(GcRequest(dry_run=False, wait=True))

    assert report.done[Kind.DIRECTORY].items == 1
    assert any("s ahead of the store's" in note for note in report.notes)
    assert "ahead of the store's" in caplog.text


def test_collection_waits_until_what_it_drained_is_free_by_the_clock_of_the_store(s3, table):
    opened = opened_at(table, s3, _Behind())
    with TableWriter.open(table) as writer:
        writer.put(people(4))
        writer.flush()
    opened.run(MergeRequest())
    drop_old_versions(table.uri, s3.storage_options)

    report = opened.run(GcRequest(dry_run=False, wait=True))

    assert report.done[Kind.DIRECTORY].items == 1


def test_clock_that_is_ahead_fences_no_live_writer(table, ahead):
    """Each cycle took its region from each writer whose rows waited."""
    writer = RegionWriter.open(table.with_settings(SETTINGS), only_region(ahead))
    writer.put(people(70))

    report = ahead.run(FlushRequest(due_only=True))

    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert writer.put(people(71)).durable
    writer.flush()
