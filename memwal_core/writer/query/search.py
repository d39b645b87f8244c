"""Queries over the MemTables of one writer: by condition, by vector, by words.

With indexed writes the rows lie in pieces with the indexes that a flushed MemTable gets, built by the
same recipes, so that tokens, centroids and distances are those of the base table. Without indexed
writes the same queries scan the rows.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import MatchQuery

from memwal_core.base_table import translated
from memwal_core.base_table.indexes.recipes import IndexRecipe
from memwal_core.base_table.indexes.text_index import TEXT_KIND
from memwal_core.base_table.reading.filter_text import require_filter, require_whole_filter
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import DISTANCE_COLUMN, ROW_ADDRESS, SCORE_COLUMN, TOMBSTONE_COLUMN
from memwal_core.memtable import MemTable
from memwal_core.native.casting import no_rows
from memwal_core.writer.layout import TableLayout
from memwal_core.writer.query.pieces import ADDRESS, IndexedMemTable, SearchPiece

Recipes = Callable[[], Sequence[IndexRecipe]]
MemTables = Callable[[], Sequence[MemTable]]

_GROWTH = 4


@dataclass(frozen=True, slots=True)
class _Moment:
    """All rows of one moment, oldest first; ``live`` marks the newest of each key unless it is a tombstone."""

    pieces: tuple[SearchPiece, ...]
    live: tuple[npt.NDArray[np.bool_], ...]


class MemTableSearch:
    """Answers queries from the unflushed rows of a writer, which makes it; see ``RegionWriter.search``.

    Answers consist of the newest row of each key in the MemTables. A key without a row there, or whose
    newest row is a tombstone, gives no row; the base table and flushed MemTables are not searched
    (``memwal_core.reader`` combines all of them).

    Args:
        memtables: Returns the MemTables, oldest generation first.
        recipes: Reads how maintained indexes are built; called once per MemTable.
        is_indexed: Whether conditions and vectors are answered by indexes; otherwise by scans.
    """

    def __init__(self, memtables: MemTables, layout: TableLayout, recipes: Recipes, *, is_indexed: bool) -> None:
        self._is_indexed = is_indexed
        self._memtables = memtables
        self._layout = layout
        self._names = {field_id: name for name, field_id in layout.fields.field_ids.items()}
        self._recipes = recipes
        self._lock = threading.Lock()
        self._known: weakref.WeakKeyDictionary[MemTable, IndexedMemTable] = weakref.WeakKeyDictionary()
        self._whole: tuple[_Moment, SearchPiece] | None = None
        self._moment: _Moment | None = None

    def refresh(self) -> None:
        """Index all rows that are in the MemTables now.

        Raises:
            UnavailableError: The recipes of the indexes could not be read.
        """
        for memtable in self._memtables():
            known = self._indexed(memtable)
            if known.has_recipes:
                known.refresh()

    def matching(self, filter_sql: str) -> pa.Table:
        """Return the rows that fulfil a condition, in write order.

        Returns:
            Rows in the base table's schema.

        Raises:
            InvalidRequestError: Lance does not accept the condition, or the text goes on behind it.
        """
        require_filter(filter_sql)
        moment = self._now()
        if moment.pieces:
            require_whole_filter(moment.pieces[0].dataset, filter_sql)
        found = []
        for piece, live in zip(moment.pieces, moment.live, strict=True):
            with translated("filter rows in memory", ADDRESS):
                rows = piece.dataset.scanner(columns=[], filter=filter_sql, with_row_address=True).to_table()
            places = np.sort(rows.column(ROW_ADDRESS).to_numpy())
            found.append(piece.rows.take(pa.array(places[live[places]])))
        return self._shown(found)

    def nearest(
        self, column: str, vector: npt.NDArray[np.floating], k: int = 10, metric: str | None = None
    ) -> pa.Table:
        """Return the rows with the nearest vectors, nearest first.

        All partitions of an index are searched, and the distances of quantized candidates are computed again
        from the vectors.

        Args:
            column: A fixed-size list of floats.
            vector: As many numbers as its lists have.
            k: Rows wanted.
            metric: ``l2``, ``cosine`` or ``dot``; that of the maintained index if None, otherwise ``l2``.

        Returns:
            Rows in the base table's schema with ``_distance``.

        Raises:
            InvalidRequestError: The query does not fit the table.
        """
        self._check(column, k)
        self._check_vector(column, vector)
        moment = self._now()
        chosen = metric or self._metric(moment, column)
        found = [
            self._nearest(piece, live, {"column": column, "q": vector, "metric": chosen}, k)
            for piece, live in zip(moment.pieces, moment.live, strict=True)
        ]
        return self._shown(found, DISTANCE_COLUMN).sort_by([(DISTANCE_COLUMN, "ascending")]).slice(0, k)

    def with_words(self, column: str, query: str, k: int = 10) -> pa.Table:
        """Return the rows whose texts contain any of some words, best first.

        Scores are those of one index over exactly the rows that answers can show. It is built from that column
        alone when it is first needed, and kept until a row is added.

        Args:
            column: A text column with a maintained full-text index.
            query: The words.
            k: Rows wanted.

        Returns:
            Rows in the base table's schema with ``_score``.

        Raises:
            InvalidRequestError: The column has no maintained full-text index, or ``k`` is not positive.
            UnavailableError: The recipes of the indexes could not be read.
        """
        self._check(column, k)
        whole = self._as_one(self._now(), column)
        if whole is None:
            return self._shown([], SCORE_COLUMN)
        with translated("search texts in memory", ADDRESS):
            hits = whole.dataset.scanner(
                columns=[SCORE_COLUMN], full_text_query=MatchQuery(query, column), limit=k, with_row_address=True
            ).to_table()
        rows = whole.rows.take(hits.column(ROW_ADDRESS)).append_column(SCORE_COLUMN, hits.column(SCORE_COLUMN))
        return self._shown([rows], SCORE_COLUMN).sort_by([(SCORE_COLUMN, "descending")])

    def _check(self, column: str, k: int) -> None:
        if column not in self._layout.schema.names or not isinstance(k, (int, np.integer)) or k < 1:
            raise InvalidRequestError(
                "the search does not fit the table",
                remedy="name a column of the table and ask for at least one row",
                column=column,
                columns=self._layout.schema.names,
                k=k,
            )

    def _check_vector(self, column: str, vector: npt.NDArray[np.floating]) -> None:
        kind = self._layout.schema.field(column).type
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
        given = np.asarray(vector)
        if given.shape != (size,) or given.dtype.kind not in "fiu":
            raise InvalidRequestError(
                "the vector does not fit the column",
                remedy="name a column of fixed-size lists, and pass as many numbers as its lists have",
                column=column,
                type=str(kind),
                shape=given.shape,
                numbers=str(given.dtype),
            )

    def _nearest(self, piece: SearchPiece, live: npt.NDArray[np.bool_], wanted: dict[str, object], k: int) -> pa.Table:
        recipe = piece.indexed.get(str(wanted["column"]))
        by_index = recipe is not None and recipe.is_vector and recipe.parameters["metric"] == wanted["metric"]
        if recipe is not None and by_index:
            wanted = {**wanted, "nprobes": recipe.parameters["num_partitions"], "refine_factor": _GROWTH}
        count = min(k, piece.rows.num_rows)
        while True:
            with translated("search vectors in memory", ADDRESS):
                hits = piece.dataset.scanner(
                    columns=[DISTANCE_COLUMN],
                    nearest={**wanted, "k": count, "use_index": by_index},
                    with_row_address=True,
                ).to_table()
            kept = hits.filter(pa.array(live[hits.column(ROW_ADDRESS).to_numpy()]))
            if kept.num_rows >= k or count >= piece.rows.num_rows:
                break
            count = min(count * _GROWTH, piece.rows.num_rows)
        distances = kept.column(DISTANCE_COLUMN)
        rows = piece.rows.take(kept.column(ROW_ADDRESS)).append_column(DISTANCE_COLUMN, distances)
        return rows.filter(distances.is_valid())

    def _metric(self, moment: _Moment, column: str) -> str:
        for piece in moment.pieces:
            recipe = piece.indexed.get(column)
            if recipe is not None and recipe.is_vector:
                return str(recipe.parameters["metric"])
        return "l2"

    def _as_one(self, moment: _Moment, column: str) -> SearchPiece | None:
        """Return all live rows as one piece with a full-text index; None if no text can be found."""
        with self._lock:
            if self._whole is not None and self._whole[0] is moment:
                return self._whole[1]
        recipes = [each for each in self._text_recipes() if self._names.get(each.field_id) == column]
        if not recipes:
            raise InvalidRequestError(
                "the column has no full-text index that MemTables maintain",
                remedy="let MemTables maintain the column's full-text index with `memwal index maintain`",
                column=column,
            )
        rows = [
            piece.rows.filter(pa.array(live))
            for piece, live in zip(moment.pieces, moment.live, strict=True)
            if any(live)
        ]
        if not rows:
            return None
        piece = SearchPiece.of(pa.concat_tables(rows), recipes, self._names, [column])  # Other columns need no copy.
        if column not in piece.indexed:
            return None
        with self._lock:
            self._whole = moment, piece
        return piece

    def _text_recipes(self) -> list[IndexRecipe]:
        return [recipe for recipe in self._recipes() if recipe.kind == TEXT_KIND]

    def _pieces(self) -> tuple[SearchPiece, ...]:
        return tuple(piece for memtable in self._memtables() for piece in self._indexed(memtable).refresh())

    def _indexed(self, memtable: MemTable) -> IndexedMemTable:
        with self._lock:
            known = self._known.get(memtable)
        if known is not None:
            return known
        recipes = self._recipes() if self._is_indexed else ()
        with self._lock:
            return self._known.setdefault(memtable, IndexedMemTable(memtable, recipes, self._names))

    def _now(self) -> _Moment:
        pieces = self._pieces()
        with self._lock:
            known = self._moment
        if known is not None and known.pieces == pieces:
            return known
        moment = _Moment(pieces, tuple(self._live(pieces)))
        with self._lock:
            self._moment = moment
        return moment

    def _live(self, pieces: Sequence[SearchPiece]) -> list[npt.NDArray[np.bool_]]:
        if not pieces:
            return []
        key = list(self._layout.key)
        rows = pa.concat_tables(piece.rows.select([*key, TOMBSTONE_COLUMN]) for piece in pieces)
        live = np.zeros(rows.num_rows, dtype=bool)
        live[last_row_per_key(rows, key)] = True
        live &= ~rows.column(TOMBSTONE_COLUMN).to_numpy()
        return np.split(live, np.cumsum([piece.rows.num_rows for piece in pieces])[:-1])

    def _shown(self, found: Sequence[pa.Table], extra: str | None = None) -> pa.Table:
        """Return rows in the base table's schema, with one further column where a query adds one."""
        schema = self._layout.schema.remove_metadata()
        if extra is not None:
            schema = schema.append(pa.field(extra, pa.float32()))
        parts = [no_rows(schema)]
        parts += [pa.Table.from_arrays(rows.select(schema.names).columns, schema=schema) for rows in found]
        return pa.concat_tables(parts)
