"""Vectors cached by a view: those of small generations, and of base rows that an index lacks.

Searching a thousand rows takes Lance as long through an index as without one, mostly for other work than comparing
vectors. So all small sources together become one flat search in memory, exact and with comparable distances. Larger
sources keep their own indexes.
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
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.format.columns import DISTANCE_COLUMN, ROW_ADDRESS, ROW_ID
from memwal_core.native.casting import cast, cast_rows, no_rows
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.rows.generation_rows import RowRequest
from memwal_core.reader.rows.in_memory import as_dataset
from memwal_core.reader.rows.winners import WinningRows

MAX_HELD_BYTES = 8 * 1024 * 1024
"""Vectors of one column that a view caches."""


@dataclass(frozen=True, slots=True)
class Near:
    """Numbers and distances of cached rows, nearest first."""

    numbers: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class CachedVectors:
    """Newest versions of rows, with their vectors; rows without a vector are not included.

    Attributes:
        base_ids: Row ids of base rows, which come first.
        has_gap: Whether these are all base rows that the index lacks; otherwise there are none.
        generations: Generations whose rows follow, in this order.
        numbers: Row numbers within each generation.
        dataset: The vectors; None if there are none.
    """

    base: lance.LanceDataset
    base_ids: npt.NDArray[np.uint64]
    has_gap: bool
    generations: tuple[WinningRows, ...]
    numbers: tuple[npt.NDArray[np.int64], ...]
    dataset: lance.LanceDataset | None
    column: str

    def covers(self, generation: WinningRows) -> bool:
        """Tell whether the rows of a generation are cached."""
        return any(each.rows.source == generation.rows.source for each in self.generations)

    def nearest(self, vector: npt.NDArray[np.floating], k: int, metric: str) -> Near:
        """Return the nearest rows by measuring every vector; ``metric`` is ``l2``, ``cosine`` or ``dot``."""
        if self.dataset is None:
            return Near(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
        nearest = {"column": self.column, "q": vector, "k": k, "metric": metric, "use_index": False}
        with translated("search vectors", self.dataset.uri):
            found = self.dataset.scanner(columns=[DISTANCE_COLUMN], nearest=nearest, with_row_address=True).to_table()
        found = found.filter(found.column(DISTANCE_COLUMN).is_valid())
        numbers = found.column(ROW_ADDRESS).to_numpy().astype(np.int64)
        return Near(numbers, found.column(DISTANCE_COLUMN).to_numpy())

    def read(self, numbers: npt.NDArray[np.int64], schema: pa.Schema) -> pa.Table:
        """Read rows from where they are stored, in the order of ``numbers``."""
        parts, places = [no_rows(schema)], [np.empty(0, dtype=np.int64)]
        is_base = numbers < len(self.base_ids)
        if is_base.any():
            rows = rows_of(self.base, self.base_ids[numbers[is_base]], tuple(schema.names))
            parts.append(pa.Table.from_arrays([cast(rows.column(f.name), f.type) for f in schema], schema=schema))
            places.append(np.flatnonzero(is_base))
        start = len(self.base_ids)
        for generation, own in zip(self.generations, self.numbers, strict=True):
            chosen = np.flatnonzero((numbers >= start) & (numbers < start + len(own)))
            if len(chosen):
                chosen = chosen[np.argsort(numbers[chosen])]
                batches = generation.rows.read(own[numbers[chosen] - start], RowRequest(tuple(schema.names)))
                parts.extend(cast_rows(pa.Table.from_batches([batch]), schema) for batch in batches)
                places.append(chosen)
            start += len(own)
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))


def cache_vectors(
    opened: OpenedTable,
    column: str,
    unindexed: Sequence[int],
    winners: Sequence[WinningRows],
    superseded: KeySearch | None,
) -> CachedVectors:
    """Read the vectors of small sources.

    ``unindexed`` are base fragments that the column's index lacks, ``winners`` generations that the base table lacks,
    ``superseded`` the keys whose rows in the base table are outdated.
    """
    field = opened.target.schema.field(column)
    left = MAX_HELD_BYTES // max(1, field.type.list_size * field.type.value_type.bit_width // 8)
    base_ids, has_gap, parts = np.empty(0, dtype=np.uint64), False, []
    fragments = fragments_of(opened.base, unindexed)
    if sum(each.count_rows() for each in fragments) <= left:
        base_ids, vectors = _gap_of(opened, column, fragments, superseded)
        has_gap, left = True, left - len(base_ids)
        parts.append(cast(vectors, field.type))
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
    cached = pa.chunked_array([chunk for part in parts for chunk in part.chunks], field.type)
    dataset = as_dataset(pa.table({column: cached})) if len(cached) else None
    return CachedVectors(opened.base, base_ids, has_gap, tuple(generations), tuple(numbers), dataset, column)


def _gap_of(
    opened: OpenedTable, column: str, fragments: list[lance.LanceFragment], superseded: KeySearch | None
) -> tuple[npt.NDArray[np.uint64], pa.ChunkedArray]:
    """Return row ids and vectors of base rows that have a vector and are not superseded."""
    if not fragments:
        return np.empty(0, dtype=np.uint64), pa.chunked_array([], opened.target.schema.field(column).type)
    with translated("read vectors that the index lacks", opened.uri):
        rows = opened.base.scanner(columns=[*opened.key, column], fragments=fragments, with_row_id=True).to_table()
    rows = rows.filter(pc.is_valid(rows.column(column)))
    if superseded is not None:
        rows = rows.filter(pa.array(~superseded.found(rows.select(list(opened.key)))))
    return rows.column(ROW_ID).to_numpy(), rows.column(column)
