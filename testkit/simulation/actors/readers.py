"""Actors that read: what they see must have been possible at some moment of the read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.view import TableView
from testkit.simulation.model import WrongRowError
from testkit.simulation.world import BASE_KEYS, KEYS, Actor
from testkit.tables.readable import as_model, keys_of

_COLUMNS = ("id", "name")


class ReaderActor(Actor):
    """Reads everything that is durable, by one of the ways to read, and compares it with the model.

    A read that others interrupt may show what was there when it began, or what was written since.
    """

    def turn(self) -> str:
        """Read the whole table once.

        Raises:
            WrongRowError: What was read was possible at no moment of the read.
            InvalidRequestError: The read was refused although nobody has changed the schema.
        """
        world = self._world
        way = world.rng.choice(tuple(_WAYS))
        began = world.model.moment()
        table = MergedReader(world.table, consistency=Consistency.DURABLE)
        try:
            found = as_model(table.read(_WAYS[way]))
        except InvalidRequestError:
            if not world.has_drifted:
                raise
            world.seen["read refused: unflushed rows of two schemas"] += 1
            return "was refused: unflushed rows have another schema"
        wrong = world.model.mismatches_since(began, found)
        if wrong:
            raise WrongRowError(f"{self.name} by {way}: {wrong}")
        world.seen[f"read by {way}"] += 1
        return f"read {len(found)} rows by {way}"


def _scan(view: TableView) -> pa.Table:
    return view.scan(ScanRequest(columns=_COLUMNS)).to_arrow()


def _lookup(view: TableView) -> pa.Table:
    return view.lookup(keys_of(*range(KEYS), *BASE_KEYS), _COLUMNS)


_WAYS: dict[str, Callable[[TableView], pa.Table]] = {"scan": _scan, "lookup": _lookup}
