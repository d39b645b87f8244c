"""The epoch is verified beside the writes: no put of a busy writer waits for it, none is acknowledged without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memwal_core.errors import FencedError
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, claim
from memwal_core.storage import open_store
from memwal_core.writer import RegionWriter
from memwal_core.writer.claim.ownership import AHEAD_THREAD
from testkit.clock import ManualClock
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.regions import create_region, writer_settings

INTERVAL_S = 100.0
SETTINGS = writer_settings(epoch_check_interval_s=INTERVAL_S, background_flush=True, max_memtable_age_s=1e6)


class _Busy:
    """A writer whose requests are told by thread, and whose looks at the manifest can be held up."""

    def __init__(self, uri: str) -> None:
        self.table = make_people_table(uri, settings=SETTINGS, buckets=1)
        self.region = create_region(self.table)
        self.store = FaultyStore(open_store(uri, settings=SETTINGS.storage))
        self.clock = ManualClock()
        self.writer = RegionWriter.open(with_clock(reopened(self.table, self.store, SETTINGS), self.clock), self.region)
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[tuple[str, str]] = []
        self.store.add(Rule(self._ask, Moment.BEFORE, times=None))

    def _ask(self, call: Call) -> None:
        self.asked.append((threading.current_thread().name, call.operation))
        if "/manifest/" in call.path:
            self.gate.wait(30)

    def put(self, after_s: float) -> None:
        self.clock.advance(after_s)
        self.writer.put(people(1))

    def own_requests(self) -> list[str]:
        """Return what the threads that wait for puts have asked for since the last call."""
        made = [operation for name, operation in self.asked if name != AHEAD_THREAD]
        self.asked.clear()
        return made

    def claimed_by_another(self) -> None:
        claim(ManifestStore(self.table.store, IdSource()), self.region)


def _settled() -> None:
    for thread in threading.enumerate():
        if thread.name == AHEAD_THREAD:
            thread.join(30)


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[_Busy]:
    made = _Busy(str(tmp_path / "t"))
    yield made
    made.gate.set()
    _settled()


@pytest.mark.req("WRT-46", "WRT-79")
def test_p6_a_put_makes_one_request_however_old_the_verification_is(busy: _Busy) -> None:
    """Each interval, one put waited for three requests more."""
    for _ in range(30):
        busy.put(after_s=INTERVAL_S / 4)
        _settled()
        assert busy.own_requests() == ["put_parts_if_absent"]


@pytest.mark.req("WRT-46")
def test_nothing_is_verified_ahead_in_the_first_half_of_the_interval(busy: _Busy) -> None:
    for after_s, threads in ((0.5, set()), (0.01, {AHEAD_THREAD})):
        busy.put(after_s=after_s * INTERVAL_S)
        _settled()
        assert {name for name, _ in busy.asked if name == AHEAD_THREAD} == threads


@pytest.mark.req("WRT-46")
def test_puts_are_acknowledged_beside_a_slow_verification_until_the_last_one_expires(busy: _Busy) -> None:
    busy.gate.clear()
    busy.put(after_s=0.6 * INTERVAL_S)
    busy.put(after_s=0.4 * INTERVAL_S)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(busy.put, 1.0)
        with pytest.raises(TimeoutError):
            late.result(0.1)
        busy.gate.set()
        late.result(30)
    assert busy.own_requests().count("put_parts_if_absent") == 3


@pytest.mark.req("WRT-46", "WRT-79")
def test_a_verification_ahead_that_finds_another_writer_stops_this_one(busy: _Busy) -> None:
    busy.claimed_by_another()
    busy.gate.clear()
    busy.put(after_s=0.6 * INTERVAL_S)  # Verified recently enough; the successor will find the entry.
    busy.gate.set()
    _settled()
    with pytest.raises(FencedError):
        busy.put(after_s=0)


@pytest.mark.req("WRT-46", "WRT-79")
def test_a_verification_under_way_does_not_count_for_an_acknowledgement(busy: _Busy) -> None:
    busy.gate.clear()
    busy.put(after_s=0.6 * INTERVAL_S)
    busy.claimed_by_another()
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(busy.put, 0.6 * INTERVAL_S)
        busy.gate.set()
        with pytest.raises(FencedError):
            late.result(30)


@pytest.mark.req("WRT-46")
def test_a_failed_verification_ahead_is_left_to_the_acknowledgement(busy: _Busy) -> None:
    busy.store.fail("get", "head", path=lambda path: "/manifest/" in path, times=1)
    busy.put(after_s=0.6 * INTERVAL_S)
    _settled()
    busy.put(after_s=0.5 * INTERVAL_S)
    busy.own_requests()
    busy.put(after_s=INTERVAL_S / 4)
    assert busy.own_requests() == ["put_parts_if_absent"]
