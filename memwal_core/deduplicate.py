"""Newest wins: the one place that decides which row of a key survives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_ROW = "__row"
_DIGIT_BITS = 16


class KeyedSource(Protocol):
    """Rows in write order, for example those of one generation."""

    @property
    def keys(self) -> pa.Table:
        """The key columns, oldest row first."""
        ...

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """For each row, whether it deletes its key."""
        ...


@dataclass(frozen=True, slots=True)
class NewestRows:
    """The newest row of each key over several sources, whose rows are numbered one source after the other.

    Attributes:
        last: The newest row of each key, ascending.
        deleted: For each of ``last``, whether it deletes its key.
        starts: The first row of each source, and at last the number of all rows.
    """

    keys: pa.Table
    last: npt.NDArray[np.int64]
    deleted: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.int64]

    @property
    def live(self) -> npt.NDArray[np.int64]:
        """The rows that survive, ascending."""
        return self.last[~self.deleted]

    @property
    def tombstones(self) -> npt.NDArray[np.int64]:
        """The rows that delete a key which no later row writes again, ascending."""
        return self.last[self.deleted]

    def keys_of(self, rows: npt.NDArray[np.int64]) -> pa.Table:
        """Return the keys of some rows."""
        return self.keys.take(pa.array(rows))

    def by_source(self, rows: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        """Return for each source which of some ascending rows are its own, as its own row numbers."""
        bounds = np.searchsorted(rows, self.starts)
        places = zip(self.starts[:-1], bounds[:-1], bounds[1:], strict=True)
        return (rows[first:end] - start for start, first, end in places)


def deduplicate(oldest_first: Sequence[KeyedSource], key_columns: Sequence[str]) -> NewestRows:
    """Decide which row of which source survives: the last row of each key, unless it deletes the key.

    Args:
        oldest_first: At least one source. Of one region: rows of different regions have no order.
        key_columns: As in ``last_row_per_key``.
    """
    tables = [source.keys for source in oldest_first]
    keys = pa.concat_tables(tables)
    last = last_row_per_key(keys, key_columns)
    deleted = np.concatenate([source.deleted for source in oldest_first])[last]
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    return NewestRows(keys, last, deleted, starts)


def last_row_per_key(keys: pa.Table, key_columns: Sequence[str]) -> npt.NDArray[np.int64]:
    """Find the last row of each key.

    Args:
        keys: Any table in write order, oldest row first; only ``key_columns`` are looked at.
        key_columns: The primary key; without columns, every row has an identity of its own. Key values must not be
            NULL.

    Returns:
        Row numbers, ascending, one per distinct key.
    """
    rows = keys.num_rows
    if not key_columns:
        return np.arange(rows, dtype=np.int64)
    if rows == 0:
        return np.empty(0, dtype=np.int64)
    order = key_order(keys, key_columns)
    if order is not None:
        # A stable sort of plain integers is several times faster than hashing them.
        ordered = keys.column(key_columns[0]).to_numpy()[order]
        return np.sort(order[np.append(ordered[1:] != ordered[:-1], True)])
    columns, names = numbered_columns(keys, key_columns)
    numbered = columns.append_column(_ROW, pa.array(np.arange(rows, dtype=np.int64)))
    last = numbered.group_by(names).aggregate([(_ROW, "max")]).column(f"{_ROW}_max")
    return np.sort(last.to_numpy())


def numbered_columns(rows: pa.Table, key_columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Return the key columns under names that no other column of a join or a group has, and these names."""
    names = [f"key {number}" for number in range(len(key_columns))]
    return rows.select(list(key_columns)).rename_columns(names), names


def key_order(keys: pa.Table, key_columns: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Return the rows sorted by key, those of one key in the order of the rows.

    Args:
        keys: As in ``last_row_per_key``.
        key_columns: As in ``last_row_per_key``.

    Returns:
        Row numbers; None unless the key is one integer, the only kind that is sorted faster than hashed.
    """
    if len(key_columns) != 1 or not pa.types.is_integer(keys.schema.field(key_columns[0]).type):
        return None
    values = keys.column(key_columns[0]).to_numpy()
    if len(values) > 1 and bool(np.all(values[1:] > values[:-1])):
        return np.arange(len(values), dtype=np.int64)
    return _order_by_digits(values) if len(values) else np.empty(0, dtype=np.int64)


def _order_by_digits(values: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return what a stable ``argsort`` of integers returns, from the lowest digit to the highest.

    NumPy has a radix sort for 16-bit integers alone; a sort of wider ones takes several times as long as these passes.
    """
    low = int(values.min())
    span = int(values.max()) - low
    above = values.astype(np.uint64) - np.uint64(low % 2**64)  # Modulo 2 ** 64, so it is right for negative values.
    order = np.argsort(above.astype(np.uint16), kind="stable").astype(np.int64, copy=False)
    for bits in range(_DIGIT_BITS, span.bit_length(), _DIGIT_BITS):
        digit = (above >> np.uint64(bits)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def superseded_rows(
    keys: pa.Table, key_columns: Sequence[str], order: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """Find the rows that a later row of the same key replaces.

    Args:
        keys: As in ``last_row_per_key``.
        key_columns: As in ``last_row_per_key``.
        order: ``key_order`` of the keys, if it is known.

    Returns:
        Row numbers, ascending; empty when every key occurs once.
    """
    if order is not None:
        ordered = keys.column(key_columns[0]).to_numpy()[order]
        return np.sort(order[:-1][ordered[1:] == ordered[:-1]])
    kept = np.zeros(keys.num_rows, dtype=bool)
    kept[last_row_per_key(keys, key_columns)] = True
    return np.flatnonzero(~kept)


def rows_without_key(rows: pa.Table, others: pa.Table, key_columns: Sequence[str]) -> pa.Table:
    """Return the rows whose key does not occur in ``others`` (an anti join that keeps the order)."""
    if rows.num_rows == 0 or others.num_rows == 0:
        return rows
    columns, names = numbered_columns(rows, key_columns)
    numbered = columns.append_column(_ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    kept = numbered.join(numbered_columns(others, key_columns)[0], keys=names, join_type="left anti").column(_ROW)
    return rows.take(pa.array(np.sort(kept.to_numpy())))
