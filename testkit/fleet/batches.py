"""What the live writers of the fleet write, batch by batch, and what a table may hold after so many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from testkit.rng import seeded_rng
from testkit.tables.people import people

_KEYS = 5_000
_DELETE_EVERY = 7


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of a writer.

    Attributes:
        value: The new name of its rows; None if they are deleted.
    """

    ids: tuple[int, ...]
    value: str | None

    def rows(self) -> pa.Table:
        """Return the rows to put, or the keys to delete."""
        return pa.table({"id": self.ids}) if self.value is None else people(*self.ids, name=self.value)


def batch_of(table: str, number: int, rows: int) -> Batch:
    """Return a batch of a table, the same each time: whoever does not know whether it was written writes it again."""
    rng = seeded_rng(hash_of(table, number))
    ids = tuple(sorted(rng.sample(range(_KEYS), rows)))
    return Batch(ids, None if number % _DELETE_EVERY == _DELETE_EVERY - 1 else f"{number:06}" + "." * (rows // 10))


def hash_of(table: str, number: int) -> int:
    """Return a seed, the same in all processes."""
    return int.from_bytes(f"{table}/{number}".encode())


@dataclass
class FleetModel:
    """What a table holds after its first batches, and what it may hold while further ones are written.

    Attributes:
        batches: How many were applied.
        rows: Key -> name.
    """

    table: str
    batch_rows: int
    batches: int = 0
    rows: dict[int, str] = field(default_factory=dict)

    def advance(self, batches: int) -> None:
        """Apply batches up to a number of them."""
        while self.batches < batches:
            batch = batch_of(self.table, self.batches, self.batch_rows)
            for key in batch.ids:
                if batch.value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = batch.value
            self.batches += 1

    def mismatches(self, found: pa.Table, until: int) -> dict[int, tuple[str | None, set[str | None]]]:
        """Return what a table holds that it may not hold: key -> the name found, and the names that are possible.

        Args:
            found: The rows of the table.
            until: Batches that may have been written meanwhile, all together.
        """
        possible: dict[int, set[str | None]] = {}
        for number in range(self.batches, until):
            batch = batch_of(self.table, number, self.batch_rows)
            for key in batch.ids:
                possible.setdefault(key, {self.rows.get(key)}).add(batch.value)
        seen: Mapping[int, str] = dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
        wrong = {
            key: (seen.get(key), possible.get(key, {self.rows.get(key)}))
            for key in self.rows.keys() | seen.keys() | possible.keys()
            if seen.get(key) not in possible.get(key, {self.rows.get(key)})
        }
        if len(seen) != found.num_rows:
            wrong[-1] = (f"{found.num_rows} rows of {len(seen)} keys", set())
        return wrong
