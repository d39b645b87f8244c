"""A table writer looks at the table's schema beside its puts, and before the first one after a rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from memwal_core.errors import UnavailableError
from memwal_core.region.spec import bucket_spec
from memwal_core.writer.schema_watch import LOOK_THREAD, SchemaWatch
from memwal_core.writer.table_context import TableShape
from testkit.clock import ManualClock

INTERVAL_S = 100.0
OLD = pa.schema([pa.field("id", pa.int64(), nullable=False)])
NEW = OLD.append(pa.field("name", pa.string()))


class _World:
    def __init__(self, *, in_background: bool = True, interval_s: float = INTERVAL_S) -> None:
        self.schema = OLD
        self.gate = threading.Event()
        self.gate.set()
        self.failing = False
        self.looks: list[str] = []
        self.clock = ManualClock()
        self.watch = SchemaWatch(self._look, interval_s, self.clock, in_background=in_background)
        self.looks.clear()

    def _look(self) -> TableShape:
        self.looks.append(threading.current_thread().name)
        schema = self.schema
        self.gate.wait(30)
        if self.failing:
            raise UnavailableError("no answer", remedy="try again")
        return TableShape(schema, {"id": 0}, ("id",), bucket_spec(1, "id", {"id": 0}, 4))

    def seen(self, after_s: float = 0) -> pa.Schema:
        self.clock.advance(after_s)
        return self.watch.shape().schema

    def settle(self) -> None:
        for thread in threading.enumerate():
            if thread.name == LOOK_THREAD:
                thread.join(30)


@pytest.fixture
def world() -> Iterator[_World]:
    made = _World()
    yield made
    made.gate.set()
    made.settle()


@pytest.mark.req("WRT-27")
def test_p6_puts_that_follow_each_other_wait_for_no_look(world: _World) -> None:
    """Every 5 seconds, one put waited for it, and for the manifests of all regions."""
    world.schema = NEW
    world.gate.clear()
    assert world.seen(after_s=0.6 * INTERVAL_S) is OLD
    assert world.seen(after_s=0.3 * INTERVAL_S) is OLD
    world.gate.set()
    world.settle()
    assert world.seen() is NEW
    for _ in range(8):
        world.seen(after_s=INTERVAL_S / 4)
        world.settle()
    assert set(world.looks) == {LOOK_THREAD}
    assert len(world.looks) <= 4


@pytest.mark.req("WRT-27")
def test_the_first_put_after_a_rest_waits_for_a_look_under_way_or_looks(world: _World) -> None:
    world.schema = NEW
    assert world.seen(after_s=INTERVAL_S) is NEW
    assert LOOK_THREAD not in world.looks
    world.gate.clear()
    world.seen(after_s=0.6 * INTERVAL_S)
    world.schema = OLD
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(world.seen, INTERVAL_S)
        with pytest.raises(TimeoutError):
            late.result(0.05)
        world.gate.set()
        assert late.result(30) is OLD  # The look under way had begun too early.


def test_a_look_ahead_that_fails_is_made_again_by_who_needs_it(world: _World) -> None:
    world.failing = True
    assert world.seen(after_s=0.6 * INTERVAL_S) is OLD
    world.settle()
    with pytest.raises(UnavailableError):
        world.seen(after_s=INTERVAL_S)
    world.failing, world.schema = False, NEW
    assert world.seen() is NEW


@pytest.mark.parametrize(("in_background", "interval_s"), [(False, INTERVAL_S), (True, 0.0)])
def test_without_a_thread_or_an_interval_the_put_looks_itself(in_background: bool, interval_s: float) -> None:
    world = _World(in_background=in_background, interval_s=interval_s)
    world.schema = NEW
    assert world.seen(after_s=0.9 * interval_s) is (NEW if interval_s == 0 else OLD)
    assert world.seen(after_s=0.1 * interval_s) is NEW
    assert LOOK_THREAD not in world.looks
