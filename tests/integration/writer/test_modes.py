"""Durable and buffered writes: who waits for what, and which rows share a WAL entry."""

import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from memwal_core.errors import CommitUnknownError, FencedError, InvalidRequestError
from memwal_core.format.paths import wal_directory
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, claim
from memwal_core.writer import RegionWriter, stats
from memwal_core.writer.claim.takeover import read_releases
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, Moment, Rule
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import Blocked, blocking, create_region, open_writer, writer_settings
from testkit.tables.wal_entries import LANCE_CODEC

WITH_THREADS = writer_settings(background_flush=True)
BUFFERED = writer_settings(durable_write=False)
WAL_PUT = "put_parts_if_absent"


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=BUFFERED)


def _entries(table, region_id) -> list[list[int]]:
    count = len(list(table.store.list_objects(wal_directory(region_id))))
    rows = [LANCE_CODEC.read(table.store, region_id, wal_id).rows for wal_id in range(1, count + 1)]
    return [entry.column("id").to_pylist() for entry in rows]


@pytest.mark.req("WRT-34", "WRT-44", "WRT-36")
def test_puts_that_meet_a_write_under_way_share_the_next_entry(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, WITH_THREADS, faulty)
    with ThreadPoolExecutor(8) as pool, blocking(faulty, WAL_PUT) as blocked:
        first = pool.submit(writer.put, people(0))
        assert blocked.reached.wait(60)
        others = [pool.submit(writer.put, people(i)) for i in range(1, 7)]
        while writer.memtable.num_rows < 7:
            wait(others, timeout=0.001)
        blocked.release.set()
        receipts = [future.result(60) for future in [first, *others]]
    assert [receipt.wal_id for receipt in receipts] == [1, 2, 2, 2, 2, 2, 2]
    assert [sorted(entry) for entry in _entries(table, region_id)] == [[0], [1, 2, 3, 4, 5, 6]]
    writer.close()


def test_callers_whose_rows_are_written_do_not_wait_for_the_next_entry(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, WITH_THREADS, faulty)
    held = [Blocked() for _ in range(3)]
    for number, blocked in enumerate(held, 1):
        faulty.add(Rule(blocked.hold, Moment.BEFORE, frozenset([WAL_PUT]), nth=number))

    def put_until(pool: ThreadPoolExecutor, first: int, end: int) -> list[Future]:
        futures = [pool.submit(writer.put, people(key)) for key in range(first, end)]
        while writer.memtable.num_rows < end:
            wait(futures, timeout=0.001)
        return futures

    with ThreadPoolExecutor(12) as pool:
        try:
            alone = put_until(pool, 0, 1)
            assert held[0].reached.wait(60)
            together = put_until(pool, 1, 7)
            held[0].release.set()
            assert held[1].reached.wait(60)
            later = put_until(pool, 7, 9)
            held[1].release.set()
            assert held[2].reached.wait(60)
            assert {future.result(60).wal_id for future in together} == {2}
            assert not any(future.done() for future in later)
        finally:
            for blocked in held:
                blocked.release.set()
        assert [future.result(60).wal_id for future in [*alone, *later]] == [1, 3, 3]
    writer.close()


def test_a_lone_durable_put_waits_for_no_timer(table, region_id) -> None:
    clock = ManualClock()
    writer = open_writer(table, region_id, writer_settings(wal_flush_interval_s=3600), clock=clock)
    assert writer.put(people(1)).wal_id == 1
    assert clock.monotonic() == 0
    assert clock.sleeps == []


@pytest.mark.req("WRT-10", "WRT-31")
def test_with_a_blocked_store_a_buffered_put_returns_and_a_durable_one_waits(table, faulty, region_id) -> None:
    buffered = writer_settings(durable_write=False, background_flush=True, wal_flush_puts=1)
    writer = open_writer(table, region_id, buffered, faulty)
    with blocking(faulty, WAL_PUT) as blocked:
        assert not writer.put(people(1)).durable
        assert blocked.reached.wait(60)
        assert not writer.put(people(2)).durable
    writer.close()
    durable = open_writer(table, region_id, WITH_THREADS, faulty)
    with ThreadPoolExecutor(1) as pool, blocking(faulty, WAL_PUT) as blocked:
        waiting = pool.submit(durable.put, people(3))
        assert blocked.reached.wait(60)
        assert not waiting.done()
        blocked.release.set()
        assert waiting.result(60).durable
    durable.close()


@pytest.mark.req("WRT-06", "WRT-30", "WRT-44")
def test_a_hundred_buffered_puts_with_a_threshold_of_ten_make_ten_entries(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings(durable_write=False, wal_flush_puts=10), clock=ManualClock())
    for i in range(100):
        writer.put(people(i))
    assert _entries(table, region_id) == [list(range(first, first + 10)) for first in range(0, 100, 10)]


@pytest.mark.req("WRT-30")
def test_buffered_rows_go_to_the_wal_at_the_byte_threshold_and_not_before(table, region_id) -> None:
    one = people(1)
    size = RegionWriter.open(table, create_region(table))
    size.put(one)
    limit = size.memtable.size_bytes * 3
    writer = open_writer(
        table, region_id, writer_settings(durable_write=False, wal_flush_bytes=limit), clock=ManualClock()
    )
    for expected in ([], [], [[1, 1, 1]]):
        writer.put(one)
        assert _entries(table, region_id) == expected


@pytest.mark.req("WRT-30", "WRT-06")
def test_buffered_rows_go_to_the_wal_when_their_time_is_over(table, region_id) -> None:
    clock = ManualClock()
    writer = open_writer(table, region_id, writer_settings(durable_write=False, wal_flush_interval_s=5), clock=clock)
    writer.put(people(1))
    clock.advance(4.9)
    writer.run_due()
    assert _entries(table, region_id) == []
    clock.advance(0.1)
    writer.run_due()
    assert _entries(table, region_id) == [[1]]


@pytest.mark.req("WRT-02", "WRT-30")
def test_the_wal_thread_writes_buffered_rows_without_another_call(table, faulty, region_id) -> None:
    settings = writer_settings(durable_write=False, background_flush=True, wal_flush_interval_s=0.01)
    writer = open_writer(table, region_id, settings, faulty)
    with blocking(faulty, WAL_PUT) as blocked:
        writer.put(people(1))
        assert blocked.reached.wait(60)
    assert writer.sync() == 1
    writer.close()


@pytest.mark.req("WRT-03", "WRT-79")
def test_async_puts_are_readable_at_once_and_settle_together_when_durable(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings())
    futures = [writer.put_async(people(i)) for i in range(3)]
    assert writer.memtable.num_rows == 3
    assert [future.done() for future in futures] == [False] * 3
    assert not futures[0].cancel()
    writer.sync()
    assert [future.result(0).wal_id for future in futures] == [1, 1, 1]


def test_async_puts_are_written_by_the_thread(table, region_id) -> None:
    with open_writer(table, region_id, WITH_THREADS) as writer:
        assert writer.put_async(people(1)).result(60).durable


def test_async_puts_of_a_writer_that_nobody_holds_any_more_are_written(table, faulty, region_id) -> None:
    """The thread ended with its writer, and whoever held the future alone waited for ever."""
    writer = open_writer(table, region_id, WITH_THREADS, faulty)
    with blocking(faulty, WAL_PUT) as blocked:
        first = writer.put_async(people(1))
        assert blocked.reached.wait(60)
        second = writer.put_async(people(2))
        del writer
        gc.collect()
        blocked.release.set()
        assert (first.result(60).wal_id, second.result(60).wal_id) == (1, 2)


@pytest.mark.req("WRT-33", "WRT-39", "G-15", "MEM-12")
def test_a_failed_wal_write_fails_each_future_once_and_keeps_the_rows_pending(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings(), faulty)
    futures = [writer.put_async(people(i)) for i in range(3)]
    settled = []
    for future in futures:
        future.add_done_callback(settled.append)
    faulty.fail(WAL_PUT)
    with pytest.raises(CommitUnknownError):
        writer.sync()
    assert [type(future.exception(0)) for future in futures] == [CommitUnknownError] * 3
    assert writer.stats().pending_puts == 3
    later = writer.put_async(people(3))
    writer.sync()
    assert later.result(0).wal_id == 1
    assert _entries(table, region_id) == [[0, 1, 2, 3]]
    assert len(settled) == 3
    assert writer.stats().counts[stats.WAL_FAILURES] == 1


@pytest.mark.req("WRT-79")
def test_three_waiting_futures_all_fail_when_the_writer_is_fenced(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings())
    futures = [writer.put_async(people(i)) for i in range(3)]
    successor = open_writer(table, region_id, writer_settings())
    successor.put(people(9))
    with pytest.raises(FencedError):
        writer.sync()
    assert [type(future.exception(0)) for future in futures] == [FencedError] * 3
    with pytest.raises(FencedError):
        writer.put_async(people(4))


@pytest.mark.req("WRT-79", "WRT-76")
def test_a_flush_that_is_fenced_fails_the_futures_of_other_rows(table, region_id) -> None:
    writer = open_writer(table, region_id, writer_settings())
    writer.put(people(1))
    writer.rotate()
    future = writer.put_async(people(2))
    claim(ManifestStore(table.store, IdSource()), region_id)
    with pytest.raises(FencedError):
        writer._flushes.flush_next()
    assert isinstance(future.exception(0), FencedError)


@pytest.mark.req("WRT-87", "WRT-02")
def test_closing_ends_all_threads_and_a_dropped_writer_ends_its_own(table, region_id) -> None:
    settings = writer_settings(background_flush=True, durable_write=False)
    before = set(threading.enumerate())
    writer = open_writer(table, region_id, settings)
    writer.put(people(1))
    assert len(set(threading.enumerate()) - before) == 2
    writer.close()
    assert set(threading.enumerate()) - before == set()
    with pytest.raises(InvalidRequestError):
        writer.put(people(2))
    dropped = open_writer(table, create_region(table), settings)
    dropped.put(people(1))
    threads = set(threading.enumerate()) - before
    assert threads
    del dropped
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert set(threading.enumerate()) - before == set()


@pytest.mark.req("WRT-87")
def test_close_makes_buffered_rows_durable_and_a_failed_close_can_be_repeated(table, faulty, region_id) -> None:
    writer = open_writer(table, region_id, BUFFERED, faulty)
    writer.put(people(1))
    faulty.fail(WAL_PUT)
    with pytest.raises(CommitUnknownError):
        writer.close()
    writer.close()
    assert _entries(table, region_id) == [[1]]


def interrupt(_: Call) -> None:
    """Do what Ctrl-C does.

    Raises:
        KeyboardInterrupt: Always.
    """
    raise KeyboardInterrupt


def test_a_close_that_was_interrupted_is_done_whole_by_the_next(table, faulty, region_id) -> None:
    """The next close did nothing and ended without an error, and the buffered rows were lost."""
    writer = open_writer(table, region_id, BUFFERED, faulty)
    writer.put(people(1))
    faulty.add(Rule(interrupt, Moment.BEFORE, frozenset([WAL_PUT])))
    with pytest.raises(KeyboardInterrupt):
        writer.close()

    writer.close()

    assert _entries(table, region_id) == [[1]]
    assert read_releases(table.store, region_id).newest == writer.writer_epoch


def test_a_close_returns_when_that_of_another_thread_is_done(table, faulty, region_id) -> None:
    """It returned at once, before the rows were durable."""
    writer = open_writer(table, region_id, BUFFERED, faulty)
    writer.put(people(1))
    with ThreadPoolExecutor(2) as pool, blocking(faulty, WAL_PUT) as blocked:
        first = pool.submit(writer.close)
        assert blocked.reached.wait(60)
        second = pool.submit(writer.close)
        assert not wait([second], timeout=0.2).done
        blocked.release.set()
        first.result(60)
        second.result(60)
    assert _entries(table, region_id) == [[1]]


@pytest.fixture
def threadless(monkeypatch: pytest.MonkeyPatch):
    """No thread of a writer is to be had until the patch is undone."""
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith(("memwal-wal", "memwal-flush")):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return monkeypatch


def test_a_moment_without_threads_delays_flushes_and_nothing_else(table, region_id, threadless) -> None:
    """A put failed although its rows were taken, no flush came any more, and the close failed."""
    writer = open_writer(table, region_id, writer_settings(background_flush=True, max_memtable_rows=2))
    assert writer.put(people(1, 2)).durable
    assert writer.put_async(people(3)).result(60).durable
    assert writer.stats().queued == 1
    threadless.undo()

    writer.put(people(4, 5))

    with writer._state.lock:
        assert writer._state.changed.wait_for(lambda: not writer._state.queue.waiting, 60)
    writer.close()


def test_a_writer_that_never_had_a_thread_is_closed_like_any_other(table, region_id, threadless) -> None:
    """Its close failed: no thread can be joined that was not started."""
    writer = open_writer(table, region_id, writer_settings(background_flush=True, durable_write=False))
    writer.put(people(1))

    writer.close()

    assert _entries(table, region_id) == [[1]]


@pytest.mark.req("MEM-18", "WRT-28")
def test_rows_of_eight_threads_are_each_in_one_generation_and_one_entry(table, region_id) -> None:
    settings = writer_settings(background_flush=True, max_memtable_rows=20, max_queued_memtables=2)
    with open_writer(table, region_id, settings) as writer:
        with ThreadPoolExecutor(8) as pool:
            receipts = list(pool.map(lambda i: writer.put(people(i)), range(200)))
        assert all(receipt.durable for receipt in receipts)
        writer.flush()
    rows = [key for entry in _entries(table, region_id) for key in entry]
    assert sorted(rows) == list(range(200))
    manifest = ManifestStore(table.store, IdSource()).load(region_id)
    assert sum(record.physical_rows for record in manifest.flushed_generations) == 200
    assert [record.generation for record in manifest.flushed_generations] == list(
        range(1, len(manifest.flushed_generations) + 1)
    )


@pytest.mark.req("WRT-04", "WRT-05", "WRT-07", "WRT-11")
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_durable_and_indexed_are_independent(table, region_id, durable: bool, indexed: bool) -> None:
    writer = open_writer(table, region_id, writer_settings(durable_write=durable, indexed_write=indexed))
    receipt = writer.put(people(1, 2))
    index = writer._indexes.of(writer.memtable)
    key = people(2).select(["id"])
    assert receipt.durable is durable
    assert index.lookup(key).num_rows == (1 if indexed else 0)
    assert index.scan().num_rows == (2 if indexed else 0)
    assert writer.memtable.to_table().num_rows == 2
    assert writer.lookup(key).column("name").to_pylist() == ["p2"]


@pytest.mark.req("MEM-17", "MEM-31")
@pytest.mark.parametrize("kind", ["hash", "ordered"])
def test_lookups_and_scans_see_the_newest_row_over_all_memtables(table, region_id, kind: str) -> None:
    writer = open_writer(table, region_id, writer_settings(memtable_index=kind))
    writer.put(people(1, 2, 3, name="old"))
    writer.rotate()
    writer.put(people(2, 4, name="new"))
    writer.delete(people(3).select(["id"]))
    found = writer.lookup(people(4, 3, 1, 2, 7).select(["id"])).sort_by("id")
    assert found.column("name").to_pylist() == ["old", "new", None, "new"]
    assert writer.scan(2, 3).select(["id", "name"]).to_pydict() == {"id": [2, 3], "name": ["new", None]}
    assert writer.scan().column("id").to_pylist() == [1, 2, 3, 4]
