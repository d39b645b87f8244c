"""Finding the end of a WAL with few requests, whatever its length."""

import threading
import uuid

import pytest

from memwal_core.errors import DamagedError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage import open_store
from memwal_core.wal import find_tail, refuse_hole
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule

REGION = RegionId(uuid.UUID("00000000-0000-4000-8000-000000000001"))
SUFFIX = ".lance"


@pytest.fixture
def store(tmp_path):
    return FaultyStore(open_store(str(tmp_path)))


def _fill(store, wal_ids) -> None:
    for wal_id in wal_ids:
        store.inner.put(wal_entry_path(REGION, wal_id, SUFFIX), b"x")


@pytest.mark.req("WRT-17", "D-04")
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 100, 333])
@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_the_last_consecutive_entry_is_found(store, length: int, concurrency: int) -> None:
    _fill(store, range(11, 11 + length))
    assert find_tail(store, REGION, SUFFIX, 10, concurrency) == 10 + length
    assert store.count("head") <= length + max(1, min(concurrency, length))


def test_a_short_tail_is_probed_one_by_one_and_not_beyond_its_end(store) -> None:
    _fill(store, [1, 2, 3])
    find_tail(store, REGION, SUFFIX, 0, 16)
    assert [call.path for call in store.calls] == [wal_entry_path(REGION, wal_id, SUFFIX) for wal_id in (1, 2, 3, 4)]


def test_a_long_tail_is_probed_in_windows_beyond_its_end(store) -> None:
    _fill(store, range(1, 18))
    find_tail(store, REGION, SUFFIX, 0, 4)
    probed = sorted(call.path for call in store.calls)
    assert probed == sorted(wal_entry_path(REGION, wal_id, SUFFIX) for wal_id in range(1, 21))


def test_entries_written_while_a_window_is_probed_are_no_hole(store) -> None:
    _fill(store, range(1, 19))
    first, second = (wal_entry_path(REGION, wal_id, SUFFIX) for wal_id in (19, 20))
    written = threading.Event()

    def write_behind(_: Call) -> None:
        _fill(store, [19, 20])
        written.set()

    def look_after_that(_: Call) -> None:
        assert written.wait(60)

    store.add(Rule(write_behind, Moment.AFTER, frozenset({"head"}), lambda path: path == first))
    store.add(Rule(look_after_that, Moment.BEFORE, frozenset({"head"}), lambda path: path == second))
    assert find_tail(store, REGION, SUFFIX, 0, 4) >= 20


def test_entries_behind_a_real_hole_are_not_reached(store) -> None:
    _fill(store, [*range(1, 21), 22, 23])
    assert find_tail(store, REGION, SUFFIX, 0, 8) == 20


@pytest.mark.req("D-04")
def test_one_missing_entry_behind_the_tail_is_a_hole_and_one_that_came_since_is_not(store) -> None:
    _fill(store, [1, 2, 4])
    with pytest.raises(DamagedError, match="hole"):
        refuse_hole(store, REGION, SUFFIX, 2, 0)

    _fill(store, [3])
    refuse_hole(store, REGION, SUFFIX, 2, 0)
    refuse_hole(store, REGION, SUFFIX, 4, 0)
