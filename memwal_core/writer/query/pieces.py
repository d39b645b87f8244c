"""Rows of a MemTable as small Lance tables, with the indexes that a flushed MemTable gets.

Each batch of new rows becomes a piece. Pieces of similar size are joined, so that there are few and
each row is indexed a logarithmic number of times.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa

from memwal_core.base_table.indexes.recipes import IndexRecipe, build_index, has_values
from memwal_core.memtable import Fragment, MemTable
from memwal_core.native.casting import compact_rows

ADDRESS = "memory://memtable"
_JOINED_FROM = 2


@dataclass(frozen=True, slots=True, eq=False)
class SearchPiece:
    """Consecutive rows of a MemTable as a Lance table.

    Attributes:
        dataset: The rows as a Lance table, row i at address i.
        indexed: Columns with an index -> its recipe.
    """

    rows: pa.Table
    dataset: lance.LanceDataset
    indexed: dict[str, IndexRecipe]

    @classmethod
    def of(
        cls, rows: pa.Table, recipes: Sequence[IndexRecipe], names: dict[int, str], columns: Sequence[str] | None = None
    ) -> SearchPiece:
        """Write rows, in write order, into a table in memory and index it.

        Recipes of columns that have no value are skipped. ``names`` maps field ids to columns; the table has only
        ``columns``, all if None.
        """
        plain = (rows if columns is None else rows.select(list(columns))).replace_schema_metadata(None).combine_chunks()
        dataset = lance.write_dataset(compact_rows(plain), ADDRESS, max_rows_per_file=2**31)
        indexed = {}
        for recipe in recipes:
            column = names.get(recipe.field_id)
            if column is not None and has_values(dataset, column):
                build_index(dataset, recipe, column)
                indexed[column] = recipe
        return cls(rows, dataset, indexed)


class IndexedMemTable:
    """The pieces of one MemTable. Safe to use while its writer adds rows."""

    def __init__(self, memtable: MemTable, recipes: Sequence[IndexRecipe], names: dict[int, str]) -> None:
        self._memtable = weakref.ref(memtable)  # A value of a weak dictionary must not keep its key alive.
        self._recipes = recipes
        self._names = names
        self._lock = threading.Lock()
        self._covered = 0
        self._last: Fragment | None = None
        self._pieces: list[SearchPiece] = []

    @property
    def has_recipes(self) -> bool:
        """Whether there is an index to maintain."""
        return bool(self._recipes)

    def refresh(self) -> tuple[SearchPiece, ...]:
        """Cover all rows that are in the MemTable now, and return the pieces in write order."""
        with self._lock:
            memtable = self._memtable()
            if memtable is None:
                return ()
            fresh = memtable.fragments_from(max(self._covered - 1, 0))
            if self._last is not None and fresh[0] is not self._last:
                # A late entry was replayed before covered rows: their order has changed, and the last one has moved.
                self._covered, self._pieces = 0, []
                fresh = memtable.fragments_from(0)
            elif self._last is not None:
                fresh = fresh[1:]
            if any(fragment.rows.num_rows for fragment in fresh):
                rows = pa.concat_tables(fragment.rows for fragment in fresh)
                while self._pieces and self._pieces[-1].rows.num_rows < _JOINED_FROM * rows.num_rows:
                    rows = pa.concat_tables([self._pieces.pop().rows, rows])
                self._pieces.append(SearchPiece.of(rows, self._recipes, self._names))
            if fresh:
                self._covered, self._last = self._covered + len(fresh), fresh[-1]
            return tuple(self._pieces)
