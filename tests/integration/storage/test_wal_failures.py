"""WAL entries that cannot be written: the rows wait, nobody is told that they are safe, and the writer goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.errors import CommitUnknownError, InvalidRequestError, MemwalError
from memwal_core.flushed.write.directory import FLUSH_COMMIT
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.failpoints import ArmedFailpoints
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.faults.process_limits import largest_file
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import create_region, writer_settings

SETTINGS = writer_settings()
BUFFERED = writer_settings(durable_write=False)
WITH_THREADS = writer_settings(background_flush=True)
WAL_PUT = "put_parts_if_absent"


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)


def _ids(table: BaseTable) -> list[int]:
    return sorted(Table.open(table.store.uri).to_arrow(consistency="durable")["id"].to_pylist())


def _refused(call: Call) -> None:
    raise InvalidRequestError("the store refused access (injected)", remedy="check the credentials", path=call.path)


def _interrupted(_: Call) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", Moment)
def test_a_put_that_is_interrupted_leaves_a_writer_that_goes_on(table: BaseTable, moment: Moment) -> None:
    """The next put took the entry that had landed for another process's, and the writer stopped for good."""
    store = FaultyStore(table.store)
    with RegionWriter.open(reopened(table, store, SETTINGS), create_region(table)) as writer:
        store.add(Rule(_interrupted, moment, frozenset([WAL_PUT])))
        with pytest.raises(KeyboardInterrupt):
            writer.put(people(1))
        assert writer.put(people(2)).durable
    assert _ids(table) == [1, 2]


@pytest.mark.parametrize("moment", Moment)
def test_a_put_that_the_store_refuses_is_unknown_and_comes_with_the_next(table: BaseTable, moment: Moment) -> None:
    """It was reported as a batch that does not fit, of which nothing is written."""
    store = FaultyStore(table.store)
    with RegionWriter.open(reopened(table, store, SETTINGS), create_region(table)) as writer:
        store.add(Rule(_refused, moment, frozenset([WAL_PUT])))
        with pytest.raises(CommitUnknownError, match=r"refused access .*check the credentials"):
            writer.put(people(1))
        assert writer.put(people(2)).durable
    assert _ids(table) == [1, 2]


def test_a_manifest_that_the_store_refuses_to_show_acknowledges_nothing(table: BaseTable) -> None:
    store, strict = FaultyStore(table.store), writer_settings(epoch_check_interval_s=1e-9)
    with RegionWriter.open(reopened(table, store, strict), create_region(table)) as writer:
        store.add(Rule(_refused, Moment.BEFORE, path=lambda path: "/manifest/" in path))
        with pytest.raises(CommitUnknownError, match="refused access"):
            writer.put(people(1))
        assert writer.put(people(2)).durable
    assert _ids(table) == [1, 2]


def test_close_that_the_store_refuses_can_be_repeated(table: BaseTable) -> None:
    """The first attempt closed the writer, and the rows that waited in memory were gone without a word."""
    store = FaultyStore(table.store)
    writer = RegionWriter.open(reopened(table, store, BUFFERED), create_region(table))
    writer.put(people(1))
    store.add(Rule(_refused, Moment.BEFORE, frozenset([WAL_PUT])))
    with pytest.raises(CommitUnknownError):
        writer.close()
    writer.close()
    assert _ids(table) == [1]


def _tagged(*ids: int, length: int = 1) -> pa.Table:
    """Return rows of a type that only Lance writes."""
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("tags", pa.list_(pa.string()))])
    return pa.table([list(ids), [["x" * length] for _ in ids]], schema=schema)


@pytest.fixture
def tagged(tmp_path: Path) -> BaseTable:
    table = BaseTable.open(lance.write_dataset(_tagged(9), str(tmp_path / "tagged.lance")).uri, settings=SETTINGS)
    table.create_mem_wal_index((), [])
    return table


@pytest.mark.parametrize("make", [people, _tagged], ids=["ours", "lance"])
def test_a_disk_without_room_is_named_and_loses_nothing(tmp_path: Path, make) -> None:
    """Lance's own error came out of ``put`` and ``close``, and ``close`` gave the rows up."""
    table = BaseTable.open(lance.write_dataset(make(9), str(tmp_path / "t.lance")).uri, settings=BUFFERED)
    table.create_mem_wal_index((), [])
    writer = RegionWriter.open(table, create_region(table))
    writer.put(make(*range(2000)))
    with largest_file(4096):
        for act in (writer.sync, writer.flush, writer.close):
            with pytest.raises(CommitUnknownError, match=r"too large|os error 27"):
                act()
    writer.close()
    assert _ids(table) == list(range(2000))


def test_a_disk_without_room_leaves_the_thread_that_writes(tagged: BaseTable) -> None:
    """The thread ended, and no later future was ever settled."""
    with RegionWriter.open(tagged.with_settings(WITH_THREADS), create_region(tagged)) as writer:
        with largest_file(4096), pytest.raises(CommitUnknownError):
            writer.put_async(_tagged(1, length=20_000)).result(60)
        assert writer.put_async(_tagged(2)).result(60).durable
    assert _ids(tagged) == [1, 2, 9]


def _no_memory(_: object = None) -> None:
    raise MemoryError


def test_want_of_memory_leaves_the_thread_that_writes(table: BaseTable) -> None:
    """The thread ended, and no later future was ever settled."""
    store = FaultyStore(table.store)
    with RegionWriter.open(reopened(table, store, WITH_THREADS), create_region(table)) as writer:
        store.add(Rule(_no_memory, Moment.BEFORE, frozenset([WAL_PUT])))
        with pytest.raises(CommitUnknownError, match="memory"):
            writer.put_async(people(1)).result(60)
        assert writer.put_async(people(2)).result(60).durable
    assert _ids(table) == [1, 2]


def test_want_of_memory_leaves_the_thread_that_flushes(table: BaseTable) -> None:
    """The thread ended, and puts met a full queue for as long as the writer lived, without a reason."""
    points = ArmedFailpoints().arm(FLUSH_COMMIT, _no_memory)
    settings = writer_settings(background_flush=True, flush_retry_wait_s=0.01, max_queued_memtables=1)
    with RegionWriter.open(table.with_settings(settings), create_region(table), failpoints=points) as writer:
        for key in range(3):
            writer.put(people(key))
            while not writer.rotate():  # The queue has room once the one before is flushed.
                assert "memory" in (writer.stats().last_flush_error or "memory")
        writer.flush()
    assert points.hits[FLUSH_COMMIT] == 4
    assert _ids(table) == [0, 1, 2]


def test_disk_that_refuses_at_once_is_not_asked_twenty_times_a_second(table: BaseTable) -> None:
    store, interval_s, asked = FaultyStore(table.store), 0.4, threading.Semaphore(0)
    settings = writer_settings(background_flush=True, durable_write=False, wal_flush_interval_s=interval_s)

    def refuse(call: Call) -> None:
        asked.release()
        _refused(call)

    with RegionWriter.open(reopened(table, store, settings), create_region(table)) as writer:
        store.add(Rule(refuse, Moment.BEFORE, frozenset([WAL_PUT]), times=None))
        writer.put(people(1))
        assert asked.acquire(timeout=60)
        first = SystemClock().monotonic()
        assert asked.acquire(timeout=60)
        assert SystemClock().monotonic() - first > interval_s / 2
        store.heal()
    assert _ids(table) == [1]


@pytest.mark.parametrize("check_s", [1e-9, 3600.0], ids=["epoch verified", "epoch not due"])
def test_nothing_is_acknowledged_while_a_table_is_not_where_it_was(table: BaseTable, check_s: float) -> None:
    """A volume that was unmounted for a moment: its path was made anew, and rows acknowledged there were lost."""
    path, away = Path(table.store.uri), Path(f"{table.store.uri}.away")
    settings = writer_settings(epoch_check_interval_s=check_s)
    with RegionWriter.open(table.with_settings(settings), create_region(table)) as writer:
        assert writer.put(people(1)).durable
        path.rename(away)
        for number in (2, 3):
            with pytest.raises(MemwalError, match=r"could not verify|did not|is gone, or empty"):
                writer.put(people(number))
        assert not path.exists()
        path.mkdir()  # As a mount point.
        with pytest.raises(MemwalError):
            writer.put(people(4))
        assert list(path.iterdir()) == []
        path.rmdir()
        away.rename(path)
        assert writer.put(people(5)).durable
    assert {1, 5} <= set(_ids(table))
