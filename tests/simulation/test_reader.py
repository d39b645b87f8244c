"""Readers at work during everything that writers and jobs do to a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.reader import Consistency
from memwal_core.reader.scan import ScanRequest
from memwal_core.reader.view import TableView
from memwal_core.table import MemWalTable
from memwal_core.testing.readable import as_model, keys_of
from memwal_core.testing.simulation import Chances, simulate
from memwal_core.testing.simulation.model import Model, Value
from memwal_core.testing.simulation.run import everybody
from memwal_core.testing.simulation.world import KEYS, Actor, World

READERS = 3


class ReaderActor:
    """Reads everything that is durable and compares it with what may be there.

    A read that others interrupt may show what was there when it began, or what was written since. One
    that interrupts a write may show some of it: a value that nobody has acknowledged yet, or no value.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.reads = 0
        self._world = world

    def turn(self) -> str:
        model = self._world.model
        before = {key: set(values) for key, values in model._possible.items()}
        since = model.begin()
        table = MemWalTable(self._world.table, consistency=Consistency.DURABLE)
        by_lookup = self._world.rng.random() < 0.5
        found = as_model(table.run(_looked_up if by_lookup else _scanned))
        self.reads += 1
        known = {value for _, value in model._history} - {None} if self._world.is_interrupting else None
        wrong = {
            key: (found.get(key), allowed)
            for key in range(KEYS)
            if found.get(key) not in (allowed := self._allowed(model, before, since, key))
            and (known is None or found.get(key) in known)
        }
        assert not wrong, f"seed {self._world.seed}, {self.name}: {wrong}"
        assert set(found) <= set(range(KEYS))
        return f"read {len(found)} rows by {'lookup' if by_lookup else 'scan'}"

    def die(self) -> None:
        """Forget nothing."""

    @staticmethod
    def _allowed(model: Model, before: dict[int, set[Value]], since: int, key: int) -> set[Value]:
        written = {value for each, value in model._history[since:] if each == key}
        return before.get(key, {None}) | written | (model._possible.get(key, {None}))


def _scanned(view: TableView):
    return view.scan(ScanRequest(columns=("id", "name"))).to_arrow()


def _looked_up(view: TableView):
    return view.lookup(keys_of(*range(KEYS)), ["id", "name"])


@pytest.mark.req("RD-06", "RD-12", "RD-13", "RD-15")
@pytest.mark.parametrize("seed", range(100, 108))
def test_reader_never_sees_a_wrong_row_while_everybody_is_at_work(seed: int, tmp_path: Path) -> None:
    readers: list[ReaderActor] = []

    def actors(world: World) -> list[Actor]:
        readers.extend(ReaderActor(world, f"reader-{number}") for number in range(READERS))
        return [*everybody(world), *readers]

    simulate(seed, tmp_path, chances=Chances(interleave=0.1, fail=0.01, crash=0.005), actors=actors)

    assert sum(reader.reads for reader in readers) > 0
