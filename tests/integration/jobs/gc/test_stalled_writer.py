"""A writer that stalls through its replacement must meet its successor's WAL entry, or lose rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import FencedError
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.kinds import wal_entries
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import LONGEST_EPOCH_CHECK_S, GcSettings, Settings, WalCollection, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.region_writer import RegionWriter
from testkit.clock import ManualClock
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import collect, drop_old_versions, later, make_merged_table, only_region
from testkit.tables.people import people, with_clock

# Long beside what a stall of the test itself may add to the age of real files.
INTERVAL_S = 600.0
GC_AFTER_S = 3 * INTERVAL_S


def settings(wal_epoch_checks: float) -> Settings:
    return Settings(
        writer=WriterSettings(epoch_check_interval_s=INTERVAL_S),
        gc=GcSettings(
            collect_wal=WalCollection.ALL,
            grace_s=0,
            wal_min_age_s=0,
            wal_epoch_checks=wal_epoch_checks,
            allow_unsafe_retention=True,
        ),
    )


def stall_through_a_replacement(uri: str, chosen: Settings) -> tuple[RegionWriter, BaseTable, int]:
    """Let a writer stall while a successor writes, flushes, and everything is merged and collected.

    Returns:
        The stalled writer, the table, and how many WAL entries were collected.
    """
    table = BaseTable.open(uri, settings=chosen)
    admin = Table(OpenTable.of(with_clock(table, later(GC_AFTER_S))))
    region = only_region(admin)
    clock = ManualClock()
    stalled = RegionWriter.open(with_clock(table, clock), region)
    stalled.put(people(70, name="first"))
    successor = RegionWriter.open(table, region)
    for number in (80, 81):
        successor.put(people(number, name="successor"))
    successor.flush()
    admin.run(MergeRequest())
    drop_old_versions(uri)
    report = collect(admin)
    clock.advance(INTERVAL_S / 2)
    tally = report.done.get(Kind.WAL_ENTRY)
    return stalled, table, 0 if tally is None else tally.items


def test_stalled_writer_meets_its_successors_entry_and_is_fenced(tmp_path):
    uri = make_merged_table(str(tmp_path / "t")).uri

    stalled, table, collected = stall_through_a_replacement(uri, settings(wal_epoch_checks=6))

    assert collected == 0
    with pytest.raises(FencedError):
        stalled.put(people(99, name="late"))
    assert 99 not in lsm_view(table)


def test_without_the_age_rule_a_stalled_writer_acknowledges_rows_that_are_lost(tmp_path):
    """Negative control: with the rule switched off, the same run loses an acknowledged row."""
    uri = make_merged_table(str(tmp_path / "t")).uri

    stalled, table, collected = stall_through_a_replacement(uri, settings(wal_epoch_checks=0))

    assert collected >= 3
    receipt = stalled.put(people(99, name="late"))
    assert receipt.durable
    assert 99 not in lsm_view(table)


DAYS_S = 5 * 86_400.0


def stall_where_an_older_writer_wrote(
    uri: str, interval_s: float = INTERVAL_S, collector: Settings | None = None, stall_s: float = 0.0
) -> RegionWriter:
    """Let a writer claim a region, of which its predecessor does not know and writes on, and do nothing for long.

    Then, within one interval: it flushes, which looks at its epoch; a successor takes over and flushes what the
    predecessor wrote, at the place that the stalled writer takes for the next; and everything is collected, after
    ``stall_s``, by a ``collector`` with settings of its own.
    """
    chosen = Settings(
        writer=WriterSettings(epoch_check_interval_s=interval_s), gc=GcSettings(collect_wal=WalCollection.ALL)
    )
    table, clock = BaseTable.open(uri, settings=chosen), ManualClock()
    region = only_region(Table.open(uri))
    predecessor = RegionWriter.open(table, region)
    predecessor.put(people(70, name="first"))
    stalled = RegionWriter.open(with_clock(table, clock), region)
    for number in (80, 81):
        assert predecessor.put(people(number, name="late")).durable
    for each in (Path(uri) / "_mem_wal" / str(region)).glob("*/*"):
        os.utime(each, (each.stat().st_mtime - DAYS_S,) * 2)
    stalled.flush()
    with RegionWriter.open(table, region) as successor:
        successor.put(people(90, name="successor"))
        successor.flush()
    clock.advance(stall_s)
    collect(Table(OpenTable.of(with_clock(BaseTable.open(uri, settings=collector or chosen), later(stall_s)))))
    return stalled


def test_place_that_only_a_late_predecessor_had_filled_is_not_free_for_a_stalled_writer(tmp_path):
    uri = make_merged_table(str(tmp_path / "t")).uri

    stalled = stall_where_an_older_writer_wrote(uri)

    with pytest.raises(FencedError):
        stalled.put(people(99, name="lost"))
    assert {80, 81, 90} <= set(lsm_view(BaseTable.open(uri)))


def test_control_without_the_settled_pointer_the_stalled_writer_acknowledges_a_row_that_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(wal_entries, "_settled", lambda *_: None)
    uri = make_merged_table(str(tmp_path / "t")).uri

    stalled = stall_where_an_older_writer_wrote(uri)

    assert stalled.put(people(99, name="lost")).durable
    assert 99 not in lsm_view(BaseTable.open(uri))


@pytest.mark.parametrize("stall_s", [300.0, LONGEST_EPOCH_CHECK_S / 2 - 60])
def test_stalled_writer_with_a_longer_interval_than_its_collector_loses_no_row(tmp_path, stall_s):
    """The collector took its own interval for that of all writers, whose processes have settings of their own."""
    uri = make_merged_table(str(tmp_path / "t")).uri

    stalled = stall_where_an_older_writer_wrote(uri, LONGEST_EPOCH_CHECK_S, Settings(), stall_s)

    with pytest.raises(FencedError):
        stalled.put(people(99, name="lost"))
    assert {80, 81, 90} <= set(lsm_view(BaseTable.open(uri)))
