"""Counting keys in parts: each key belongs to one part, whoever reads it, so parts are counted apart from each other.

What is read is split into pieces, each of which holds keys of one part and one origin. Where the pieces of a part come
together, the rows of each key are counted by origin, exactly, in memory that the distinct keys of the part need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table.keys.counts import SAMPLE_KEYS, KeyCounts, copies_column
from memwal_core.base_table.keys.parts import rows_by_part
from memwal_core.region.spec.columns import plain_array
from memwal_core.region.spec.murmur3 import murmur3_multi

_PIECES_BYTES = 4 << 20
"""Keys that are split at once."""

_GROUP_BYTES = 8 << 20
"""New keys that are waited for before the rows of each key are summed up."""


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """Some keys of one part.

    Attributes:
        origin: Whose keys they are.
        keys: The key columns, as an Arrow stream.
    """

    origin: str
    keys: bytes


def split_keys(keys: Iterable[pa.Table], origin: str, parts: int) -> Iterator[tuple[int, KeyPiece]]:
    """Yield the keys of tables in pieces with the number of their part, which is the same wherever the key occurs.

    Args:
        keys: Key columns only, with the same schema wherever they are read.
        origin: Whose keys they are.
        parts: How many parts there are.
    """
    waiting, size = [], 0
    for table in keys:
        waiting.append(table)
        size += table.nbytes
        if size >= _PIECES_BYTES:
            yield from _split(pa.concat_tables(waiting), origin, parts)
            waiting, size = [], 0
    if waiting:
        yield from _split(pa.concat_tables(waiting), origin, parts)


def _split(keys: pa.Table, origin: str, parts: int) -> Iterator[tuple[int, KeyPiece]]:
    if not keys.num_rows:
        return
    if parts == 1:
        yield 0, KeyPiece(origin, _stream(keys))
        return
    hashes = pc.fill_null(murmur3_multi([plain_array(column) for column in keys.columns]), 0).to_numpy()
    order, slices = rows_by_part(hashes.view(np.uint32), parts)
    ordered = keys.take(pa.array(order))
    for part, begin, end in slices:
        yield part, KeyPiece(origin, _stream(ordered.slice(begin, end - begin)))


def _stream(keys: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_table(keys)
    return bytes(sink.getvalue())


@dataclass(frozen=True, slots=True)
class KeyTally:
    """The keys of a part.

    Attributes:
        keys: Each key once.
        rows: Origin -> for each key, its number of rows.
    """

    keys: pa.Table
    rows: Mapping[str, npt.NDArray[np.int64]]


def tally(pieces: Iterable[KeyPiece], origins: Sequence[str]) -> KeyTally | None:
    """Count the rows of each key of a part by origin; None if it has none."""
    names: list[str] = []
    summed: list[pa.Table] = []
    waiting: list[pa.Table] = []
    size = 0
    for piece in pieces:
        keys = pa.ipc.open_stream(piece.keys).read_all()
        names = keys.column_names
        waiting.append(_counted(keys, origins.index(piece.origin), len(origins)))
        size += keys.nbytes
        # Sums are not made anew for each piece, and many rows of one key are not held.
        if size >= max(_GROUP_BYTES, sum(each.nbytes for each in summed)):
            summed, waiting, size = [_summed([*summed, *waiting], len(origins))], [], 0
    if not names:
        return None
    total = _summed([*summed, *waiting], len(origins))
    rows = {origin: total.column(f"rows {number}").to_numpy() for number, origin in enumerate(origins)}
    return KeyTally(total.select(range(len(names))).rename_columns(names), rows)


def _counted(keys: pa.Table, origin: int, origins: int) -> pa.Table:
    counted = keys.rename_columns([f"key {number}" for number in range(keys.num_columns)])
    for number in range(origins):
        count = np.full(keys.num_rows, int(number == origin), dtype=np.int64)
        counted = counted.append_column(f"rows {number}", pa.array(count))
    return counted


def _summed(tables: Sequence[pa.Table], origins: int) -> pa.Table:
    together = pa.concat_tables(tables)
    columns = [f"rows {number}" for number in range(origins)]
    keys = [name for name in together.column_names if name not in columns]
    grouped = together.group_by(keys).aggregate([(name, "sum") for name in columns])
    return grouped.select([*keys, *(f"{name}_sum" for name in columns)]).rename_columns([*keys, *columns])


def counts_of(found: KeyTally | None, origin: str) -> KeyCounts:
    """Return what a part adds to the counts of the keys of one origin."""
    if found is None:
        return KeyCounts(0, 0, ())
    rows = found.rows[origin]
    several = pa.array(rows > 1)
    keys = found.keys.filter(several)
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])[:SAMPLE_KEYS]
    copies = pa.array(rows).filter(several).take(order).to_pylist()
    name = copies_column(keys.column_names)
    shown = [{**row, name: count} for row, count in zip(keys.take(order).to_pylist(), copies, strict=True)]
    return KeyCounts(int(rows.sum()), int(np.count_nonzero(rows)), tuple(shown))


def sum_counts(counts: Iterable[KeyCounts], key: Sequence[str]) -> KeyCounts:
    """Return the counts of all parts together; ``key`` names the columns by which samples are ordered."""
    found = list(counts)
    repeated = [row for each in found for row in each.repeated]
    repeated.sort(key=lambda row: [_ordered(row[name]) for name in key])
    return KeyCounts(sum(each.rows for each in found), sum(each.keys for each in found), tuple(repeated[:SAMPLE_KEYS]))


def _ordered(value: Any) -> tuple[bool, Any]:  # noqa: ANN401 - whatever type the key column has
    """Return what orders values of one column as queries do: NULL comes last, text by its bytes."""
    return (value is None, value.encode() if isinstance(value, str) else value if value is not None else 0)
