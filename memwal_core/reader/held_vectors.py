"""Vectors that a view holds in memory: those of small generations, and of base rows that an index lacks.

A search of a thousand rows takes Lance as long through an index as without one, and most of that is not
spent on vectors. All small sources together are one flat search in memory: exact, and their distances
compare. Larger sources keep their own indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.reader.bridge import fragments_of
from memwal_core.reader.by_id import rows_of
from memwal_core.reader.in_memory import as_dataset
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.rows import ROW_ADDRESS, RowRequest
from memwal_core.reader.superseded import ROW_ID
from memwal_core.reader.winners import WinningRows

MAX_HELD_BYTES = 8 * 1024 * 1024
"""Of the vectors of one column that a view holds."""
DISTANCE_COLUMN = "_distance"


@dataclass(frozen=True, slots=True)
class Near:
    """Rows that are held, nearest first.

    Attributes:
        numbers: Of the rows.
        distances: Of each.
    """

    numbers: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class HeldVectors:
    """Newest versions of rows, with their vectors; rows without one are not there.

    Attributes:
        base: The base table.
        base_ids: Row ids of base rows, which come first.
        has_gap: Whether they are all rows that the index lacks; else there is none of them.
        generations: Whose rows follow, in this order.
        numbers: Row numbers in the generations, for each of them.
        dataset: The vectors; None if there are none.
        column: What they are called in it.
    """

    base: lance.LanceDataset
    base_ids: npt.NDArray[np.uint64]
    has_gap: bool
    generations: tuple[WinningRows, ...]
    numbers: tuple[npt.NDArray[np.int64], ...]
    dataset: lance.LanceDataset | None
    column: str

    def holds(self, generation: WinningRows) -> bool:
        """Tell whether the rows of a generation are held."""
        return any(each.rows.source == generation.rows.source for each in self.generations)

    def nearest(self, vector: npt.NDArray[np.floating], k: int, metric: str) -> Near:
        """Return the nearest rows; every vector is measured.

        Args:
            vector: Of the length of the others.
            k: How many at most.
            metric: ``l2``, ``cosine`` or ``dot``.
        """
        if self.dataset is None:
            return Near(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        nearest = {"column": self.column, "q": vector, "k": k, "metric": metric, "use_index": False}
        with translated("search vectors", self.dataset.uri):
            found = self.dataset.scanner(columns=[DISTANCE_COLUMN], nearest=nearest, with_row_address=True).to_table()
        found = found.filter(found.column(DISTANCE_COLUMN).is_valid())
        numbers = found.column(ROW_ADDRESS).to_numpy().astype(np.int64)
        return Near(numbers, found.column(DISTANCE_COLUMN).to_numpy())

    def read(self, numbers: npt.NDArray[np.int64], schema: pa.Schema) -> pa.Table:
        """Read some rows where they are stored.

        Args:
            numbers: Of the rows.
            schema: Columns of the table.

        Returns:
            They, in this order.

        Raises:
            GenerationGoneError: A flushed MemTable is not there.
            UnavailableError: Storage failed.
        """
        parts, places = [schema.empty_table()], [np.empty(0, dtype=np.int64)]
        is_base = numbers < len(self.base_ids)
        if is_base.any():
            rows = rows_of(self.base, self.base_ids[numbers[is_base]], tuple(schema.names))
            parts.append(pa.Table.from_arrays([rows.column(f.name).cast(f.type) for f in schema], schema=schema))
            places.append(np.flatnonzero(is_base))
        start = len(self.base_ids)
        for generation, own in zip(self.generations, self.numbers, strict=True):
            chosen = np.flatnonzero((numbers >= start) & (numbers < start + len(own)))
            if len(chosen):
                chosen = chosen[np.argsort(numbers[chosen])]
                batches = generation.rows.read(own[numbers[chosen] - start], RowRequest(tuple(schema.names)))
                parts.extend(pa.Table.from_batches([batch]).cast(schema) for batch in batches)
                places.append(chosen)
            start += len(own)
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))


def hold_vectors(
    opened: OpenedTable,
    column: str,
    unindexed: Sequence[int],
    winners: Sequence[WinningRows],
    superseded: KeySearch | None,
) -> HeldVectors:
    """Read the vectors of small sources.

    Args:
        opened: The view.
        column: A vector column.
        unindexed: Base fragments that the column's index lacks.
        winners: Generations that the base table lacks, newest first.
        superseded: Keys of older rows in the base table; None if there are none.

    Raises:
        GenerationGoneError: A flushed MemTable is not there.
        UnavailableError: Storage failed.
    """
    field = opened.target.schema.field(column)
    left = MAX_HELD_BYTES // max(1, field.type.list_size * field.type.value_type.bit_width // 8)
    base_ids, has_gap, parts = np.empty(0, dtype=np.uint64), False, []
    fragments = fragments_of(opened.base, unindexed)
    if sum(each.count_rows() for each in fragments) <= left:
        base_ids, vectors = _gap_of(opened, column, fragments, superseded)
        has_gap, left = True, left - len(base_ids)
        parts.append(vectors.cast(field.type))
    generations, numbers = [], []
    for generation in winners:
        if not len(generation.live) or len(generation.live) > left:
            continue
        rows = pa.Table.from_batches(generation.read(RowRequest((column,))), pa.schema([field]))
        is_there = pc.is_valid(rows.column(0))
        generations.append(generation)
        numbers.append(generation.live[is_there.to_numpy()])
        parts.append(rows.column(0).filter(is_there))
        left -= len(generation.live)
    held = pa.chunked_array([chunk for part in parts for chunk in part.chunks], field.type)
    dataset = as_dataset(pa.table({column: held})) if len(held) else None
    return HeldVectors(opened.base, base_ids, has_gap, tuple(generations), tuple(numbers), dataset, column)


def _gap_of(
    opened: OpenedTable, column: str, fragments: list[lance.LanceFragment], superseded: KeySearch | None
) -> tuple[npt.NDArray[np.uint64], pa.ChunkedArray]:
    """Return row ids and vectors of base rows that nothing supersedes and that have a vector."""
    if not fragments:
        return np.empty(0, dtype=np.uint64), pa.chunked_array([], opened.target.schema.field(column).type)
    with translated("read vectors that the index lacks", opened.uri):
        rows = opened.base.scanner(columns=[*opened.key, column], fragments=fragments, with_row_id=True).to_table()
    rows = rows.filter(pc.is_valid(rows.column(column)))
    if superseded is not None:
        rows = rows.filter(pa.array(~superseded.found(rows.select(list(opened.key)))))
    return rows.column(ROW_ID).to_numpy(), rows.column(column)
