"""Regions that no writer will come back to: their rows are flushed, and the region is given back."""

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.errors import ConflictError, CorruptionError, FencedError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.writer import RegionWriter
from memwal_core.writer.claim.takeover import read_releases
from memwal_core.writer.flush_region import REGION_CLAIMED, RegionFlush, flush_region
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints
from testkit.tables.native_regions import native_region_id, native_scan
from testkit.tables.people import make_people_table, people, with_clock
from testkit.tables.regions import create_region, flushed_rows, writer_settings

SETTINGS = writer_settings(max_memtable_age_s=600)
NATIVE = native_region_id(1)


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), rows=people(0, name="base"), settings=SETTINGS)


@pytest.fixture(params=[RegionStatus.SEALED, RegionStatus.ACTIVE], ids=["lance", "arrow"])
def region(request, table):
    return create_region(table, request.param)


def opened(table, region) -> RegionWriter:
    return RegionWriter.open(table, region)


def manifest(table, region):
    return ManifestStore(table.store, IdSource()).load(region)


def flush(table, region, **kwargs) -> RegionFlush:
    return flush_region(table, region, **kwargs)


def minutes_later(minutes: float) -> ManualClock:
    return ManualClock(datetime.now(tz=UTC) + timedelta(minutes=minutes))


@pytest.mark.req("WRT-87")
def test_rows_of_a_writer_that_is_gone_are_flushed_and_the_region_is_given_back(table, region) -> None:
    crashed = opened(table, region)
    crashed.put(people(1, 2, name="a"))
    crashed.put(people(2, name="b"))

    done = flush(table, region)

    assert len(done.generations) == 1
    assert flushed_rows(table, region, done.generations[0]) == {1: "a", 2: "b"}
    assert read_releases(table.store, region).newest == done.epoch == manifest(table, region).writer_epoch
    assert flush(table, region).generations == ()


def test_fenced_writer_is_stopped_or_its_late_row_is_flushed_next_time(table, region) -> None:
    """A writer of ours may acknowledge until it verifies its epoch; what it acknowledged is never lost."""
    stalled = opened(table, region)
    stalled.put(people(1, name="a"))
    flush(table, region)

    acknowledged = 0
    with contextlib.suppress(FencedError):
        acknowledged = stalled.put(people(3, name="late")).rows

    assert flush(table, region).rows == acknowledged
    assert acknowledged == (1 if manifest(table, region).status is RegionStatus.SEALED else 0)


def test_region_that_another_process_claimed_first_is_left_alone(table, region) -> None:
    crashed = opened(table, region)
    crashed.put(people(1, name="a"))
    seen = manifest(table, region).writer_epoch
    successor = opened(table, region)

    with pytest.raises(ConflictError, match="claimed the region first"):
        flush(table, region, expected_epoch=seen)

    successor.put(people(2, name="b"))
    assert manifest(table, region).writer_epoch == successor.writer_epoch


def test_writer_that_comes_back_during_the_flush_replays_the_rows(table, region) -> None:
    opened(table, region).put(people(1, name="a"))
    rivals = []
    points = ArmedFailpoints().arm(REGION_CLAIMED, lambda: rivals.append(opened(table, region)))

    with pytest.raises(FencedError):
        flush(table, region, failpoints=points)

    (rival,) = rivals
    rival.put(people(2, name="b"))
    assert flushed_rows(table, region, rival.flush()) == {1: "a", 2: "b"}


def test_damaged_wal_is_refused_and_no_generation_is_recorded(table, region) -> None:
    crashed = opened(table, region)
    for number in range(3):
        crashed.put(people(number, name="a"))
    suffix = ".lance" if manifest(table, region).status is RegionStatus.SEALED else ".arrow"
    path = wal_entry_path(region, manifest(table, region).replay_after_wal_id + 2, suffix)
    Path(table.store.uri_of(path)).write_bytes(b"damage")

    with pytest.raises(CorruptionError):
        flush(table, region)

    assert manifest(table, region).flushed_generations == ()


def test_native_writer_goes_on_in_a_region_that_we_flushed(table) -> None:
    crashed = lance.dataset(table.uri).mem_wal_writer(str(NATIVE), max_wal_flush_interval_ms=1)
    crashed.put(people(1, 2, name="native"))

    done = flush(table, NATIVE)

    assert done.rows == 2
    with lance.dataset(table.uri).mem_wal_writer(str(NATIVE), max_wal_flush_interval_ms=1) as native:
        assert native.memtable_stats()["row_count"] == 0
        native.put(people(2, 3, name="later"))
    shown = native_scan(table.uri, [manifest(table, NATIVE)], ["id", "name"], "id").to_pydict()
    assert dict(zip(shown["id"], shown["name"], strict=True)) == {0: "base", 1: "native", 2: "later", 3: "later"}


def test_opening_and_closing_flushes_rows_that_waited_long_enough(table, region) -> None:
    """S9: the age of rows counts from their WAL entry, not from the claim."""
    opened(table, region).put(people(1, name="a"))

    opened(with_clock(table, minutes_later(5)), region).close()
    assert manifest(table, region).flushed_generations == ()
    opened(with_clock(table, minutes_later(11)), region).close()

    (record,) = manifest(table, region).flushed_generations
    assert flushed_rows(table, region, record) == {1: "a"}


def test_closing_flushes_rows_that_grew_old_under_this_writer(table, region) -> None:
    clock = minutes_later(0)
    writer = opened(with_clock(table, clock), region)
    writer.put(people(1, name="a"))
    clock.advance(601)

    writer.close()

    assert len(manifest(table, region).flushed_generations) == 1


def test_closing_with_threads_flushes_what_is_due(table, region) -> None:
    threads = writer_settings(background_flush=True, max_memtable_age_s=600)
    opened(table, region).put(people(1, name="a"))

    opened(with_clock(table.with_settings(threads), minutes_later(11)), region).close()

    assert len(manifest(table, region).flushed_generations) == 1
