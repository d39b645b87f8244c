"""Garbage collection of tables that pylance's own writer writes, also while it writes."""

from __future__ import annotations

import os

import lance
import pytest

from memwal_core.clock import SystemClock
from memwal_core.format.paths import region_directory
from memwal_core.jobs.gc.items import Gate, Kind
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import DAY_S, GcSettings
from memwal_core.table import Table
from testkit.tables.garbage import collect, drop_old_versions, gc_admin, later
from testkit.tables.native_regions import Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)
COLUMNS = ["id", "name"]


@pytest.fixture
def uri(tmp_path) -> str:
    """Two generations of pylance's writer, merged."""
    address = str(tmp_path / "t")
    make_people_table(address, rows=people(1, 2))
    write_native_generations(
        address, REGION, [[Put(people(1, 3, name="a"))], [Put(people(4, name="b")), Put(people(3, name="b"))]]
    )
    merge(address)
    return address


def merge(uri: str) -> None:
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)


def writer(uri: str):
    return lance.dataset(uri).mem_wal_writer(str(REGION), max_wal_flush_interval_ms=1)


def rows(uri: str) -> dict[int, str]:
    """Return what pylance's own reader shows."""
    admin = gc_admin(uri)
    found = native_scan(uri, [admin.opened.manifests.load(REGION)], COLUMNS, "id").to_pydict()
    return dict(zip(found["id"], found["name"], strict=True))


def wal_files(uri: str) -> int:
    return len(list(gc_admin(uri).base.store.list_objects(f"{region_directory(REGION)}/wal")))


@pytest.mark.req("GC-01")
def test_merged_generations_of_pylance_are_collected(uri):
    report = collect(gc_admin(uri))

    assert report.done[Kind.DIRECTORY].items == 2
    assert wal_files(uri) == 1
    assert gc_admin(uri).base.store.list_directories(region_directory(REGION)) == ["manifest", "wal"]
    assert rows(uri) == {1: "a", 2: "p2", 3: "b", 4: "b"}


def test_reopened_writer_of_pylance_replays_no_row(uri):
    collect(gc_admin(uri))

    with writer(uri) as reopened:
        assert reopened.memtable_stats()["row_count"] == 0
        reopened.put(people(9, name="c"))
    merge(uri)

    assert rows(uri) == {1: "a", 2: "p2", 3: "b", 4: "b", 9: "c"}
    assert lance.dataset(uri).count_rows() == 5


@pytest.mark.req("GC-25", "GC-30")
def test_pylance_writer_that_is_writing_is_not_disturbed(uri):
    live = writer(uri)
    live.put(people(10, name="before"))
    epoch = gc_admin(uri).opened.manifests.load(REGION).writer_epoch

    report = collect(gc_admin(uri))
    live.put(people(11, name="after"))
    live.close()

    assert report.outcome is JobOutcome.DONE
    assert gc_admin(uri).opened.manifests.load(REGION).writer_epoch == epoch
    merge(uri)
    collect(gc_admin(uri))
    assert rows(uri) == {1: "a", 2: "p2", 3: "b", 4: "b", 10: "before", 11: "after"}


@pytest.mark.req("GC-23")
def test_scanner_of_a_live_pylance_writer_needs_the_grace_period(uri):
    """It lists the generations of its last flush, so their directories must outlive the drain."""
    live = writer(uri)
    live.put(people(10, name="new"))
    clock = later(0)
    admin = gc_admin(uri, settings=GcSettings(open_writer_s=0), clock=clock)

    assert collect(admin).done[Kind.FLUSHED_MEMTABLE].items == 2
    assert sorted(live.lsm_scanner().to_table().column("id").to_pylist()) == [1, 2, 3, 4, 10]
    clock.advance(3600)
    assert collect(admin).done[Kind.DIRECTORY].items == 2
    live.close()

    with writer(uri) as reopened:
        assert sorted(reopened.lsm_scanner().to_table().column("id").to_pylist()) == [1, 2, 3, 4, 10]


@pytest.mark.parametrize("wait_s", [DAY_S, 0])
def test_scanner_of_a_live_pylance_writer_shows_rows_that_were_merged_since_it_opened(tmp_path, wait_s):
    """S4: it reads the base table as of its opening, so it needs the record of what was merged since.

    Without the wait, the negative control, rows vanish from its scans without an error.
    """
    address = str(tmp_path / "live")
    make_people_table(address, rows=people(1, 2))
    live = lance.dataset(address).mem_wal_writer(str(REGION), max_wal_flush_interval_ms=1, max_memtable_rows=1)
    keys = [1, 2, 3, 4]
    live.put(people(3, name="a"))
    live.put(people(4, name="a"))
    _await_generations(address, 1)
    clock = later(60)
    admin = gc_admin(address, settings=GcSettings(open_writer_s=wait_s), clock=clock)
    admin.run(MergeRequest())
    drop_old_versions(address)

    collected = collect(admin)
    live.put(people(5, name="a"))
    _await_generations(address, 2 if wait_s else 1)
    clock.advance(3600)
    collect(admin)

    assert (Kind.FLUSHED_MEMTABLE in collected.done) == (not wait_s)
    shown = sorted(live.lsm_scanner().to_table().column("id").to_pylist())
    assert (shown == [*keys, 5]) == bool(wait_s)
    assert set(shown) < {*keys, 5} or wait_s
    live.close()
    clock.advance(2 * DAY_S)
    assert Kind.FLUSHED_MEMTABLE in collect(admin).done or not wait_s


def test_tag_from_before_memwal_does_not_hide_what_was_merged_since_a_pylance_writer_opened(tmp_path):
    """S4: the oldest version told since when rows were merged, although it knew of no region."""
    address = str(tmp_path / "live")
    lance.write_dataset(people(1, 2), address)
    lance.dataset(address).tags.create("before", 1)
    [first] = (tmp_path / "live" / "_versions").glob("*.manifest")
    long_ago = SystemClock().now().timestamp() - 1.5 * DAY_S
    os.utime(first, (long_ago, long_ago))
    Table.open(address).enable(key="id")
    live = lance.dataset(address).mem_wal_writer(str(REGION), max_wal_flush_interval_ms=1, max_memtable_rows=1)
    live.put(people(3, name="a"))
    live.put(people(4, name="a"))
    _await_generations(address, 1)
    admin = gc_admin(address, settings=GcSettings(open_writer_s=DAY_S), clock=later(60))
    admin.run(MergeRequest())
    drop_old_versions(address)

    assert Kind.FLUSHED_MEMTABLE not in collect(admin).done

    live.put(people(5, name="a"))
    _await_generations(address, 2)
    assert {1, 2, 3, 4} <= set(live.lsm_scanner().to_table().column("id").to_pylist())
    live.close()


def _await_generations(uri: str, count: int) -> None:
    """Wait until a writer of pylance has flushed in its own thread."""
    clock = SystemClock()
    end = clock.monotonic() + 60
    while len(gc_admin(uri).opened.manifests.load(REGION).flushed_generations) < count:
        assert clock.monotonic() < end
        clock.sleep(0.02)


@pytest.mark.req("GC-10")
def test_unflushed_entries_of_pylance_stay(uri):
    live = writer(uri)
    live.put(people(10, name="unflushed"))

    report = collect(gc_admin(uri))

    assert report.plan.kept_by_gate()[Kind.WAL_ENTRY][Gate.NOT_FLUSHED.value].items >= 1
    live.close()
    assert rows(uri)[10] == "unflushed"


def test_older_writer_of_pylance_stays_fenced_because_the_newest_entry_is_left(uri):
    old = writer(uri)
    collect(gc_admin(uri))
    assert wal_files(uri) == 1

    with writer(uri):
        with pytest.raises(OSError, match="fenced"):
            old.put(people(77, name="lost"))
        with pytest.raises(OSError, match="fenced"):
            old.close()


def test_without_the_newest_entry_an_older_writer_of_pylance_acknowledges_rows_that_are_lost(uri):
    """Negative control of the rule that the newest WAL entry stays."""
    old = writer(uri)
    store = gc_admin(uri).base.store
    store.delete_directory(f"{region_directory(REGION)}/wal")

    with writer(uri) as successor:
        old.put(people(77, name="lost"))
        successor.put(people(78, name="kept"))
    with pytest.raises(OSError, match="fenced"):
        old.close()

    assert 78 in rows(uri)
    assert 77 not in rows(uri)
