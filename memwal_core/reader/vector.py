"""Vector search: nearest rows among the newest versions, from every source's own index or a flat search.

Distances of all sources compare, because candidates of quantized indexes are measured again exactly.
Superseded candidates are found by key, not by filter, so none is dropped wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.inventory import is_vector_index
from memwal_core.base_table.key_search import KeySearch
from memwal_core.errors import InvalidRequestError
from memwal_core.reader.explain import RegionNames, explain_vector_search
from memwal_core.reader.in_memory import as_dataset
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan import ReadPlan
from memwal_core.reader.rows import ROW_ADDRESS, FlushedRows, RowRequest, is_among
from memwal_core.reader.winners import WinningRows

DISTANCE_COLUMN = "_distance"
_GROWTH = 4

Search = Callable[[int], pa.Table]
Keep = Callable[[pa.Table], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A search for nearest rows.

    Attributes:
        column: A fixed-size list of floats.
        vector: As many numbers as the column's lists have.
        k: Rows wanted.
        columns: Columns of the result besides ``_distance``; all if None.
        filter_sql: Only rows that fulfil it are ranked; None for all.
        metric: ``l2``, ``cosine`` or ``dot``; that of the base table's index if None, else ``l2``.
        nprobes: Partitions searched per index; Lance decides if None.
        refine_factor: Candidates measured exactly, as a multiple of ``k``, per indexed source.
    """

    column: str
    vector: npt.NDArray[np.floating]
    k: int = 10
    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None
    metric: str | None = None
    nprobes: int | None = None
    refine_factor: int = 1


class VectorSearch:
    """One vector search of a view.

    Args:
        opened: The view.
        query: What is searched.
    """

    def __init__(self, opened: OpenedTable, query: VectorQuery) -> None:
        """Plan the search; no row is read.

        Raises:
            InvalidRequestError: The column is no vector column, or the query does not fit it.
        """
        self._opened = opened
        self._query = query
        self._columns = query.columns if query.columns is not None else tuple(opened.target.schema.names)
        _check(query, self._columns, opened.target.schema)
        self._plan = opened.plan(query.filter_sql)
        index_metric = self._index_metric()
        self._metric = query.metric or index_metric or "l2"
        self._has_index = index_metric == self._metric

    @property
    def plan(self) -> ReadPlan:
        """What the search touches."""
        return self._plan

    def explain(self, names: RegionNames | None = None) -> str:
        """Return the plan as text."""
        return explain_vector_search(self._plan, self._query.k, names or {})

    def run(self) -> pa.Table:
        """Return the nearest rows, nearest first, with ``_distance``; freshness in the metadata.

        Raises:
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
            InvalidRequestError: Lance does not accept the filter.
        """
        winners = self._opened.winners(self._plan.regions)
        keys = [region.keys for region in winners if region.keys.num_rows]
        superseded = KeySearch(pa.concat_tables(keys), self._opened.key) if keys else None
        found = [self._in_base(superseded)]
        for region in winners:
            found.extend(self._in_generation(generation) for generation in region.generations if len(generation.live))
        ranked = pa.concat_tables(found).sort_by([(DISTANCE_COLUMN, "ascending")]).slice(0, self._query.k)
        result = ranked.select([*self._columns, DISTANCE_COLUMN])
        return result.replace_schema_metadata(dict(self._plan.freshness.metadata()))

    def _in_base(self, superseded: KeySearch | None) -> pa.Table:
        base, query = self._opened.base, self._query

        def keep(rows: pa.Table) -> npt.NDArray[np.bool_]:
            if superseded is None:
                return np.ones(rows.num_rows, dtype=bool)
            return ~superseded.found(rows.select(list(self._opened.key)))

        def search(use_index: bool) -> pa.Table:
            return _until(
                query.k,
                lambda count: self._nearest(base, query.column, count, query.filter_sql, use_index=use_index),
                keep,
            )

        found = search(self._has_index)
        if self._has_index and found.num_rows < query.k:
            # The partitions probed may be exhausted while the table is not.
            found = search(False)
        return self._typed(found)

    def _in_generation(self, generation: WinningRows) -> pa.Table:
        rows = generation.rows
        if not isinstance(rows, FlushedRows):
            return self._in_rows(generation)
        mapping = rows.keyed.mapping
        if mapping.missing or mapping.renamed:
            return self._in_rows(generation)
        live = rows.addresses(generation.live)
        dataset, query = rows.keyed.dataset, self._query
        found = _until(
            query.k,
            lambda count: self._nearest(dataset, query.column, count, query.filter_sql, use_index=True),
            lambda hits: is_among(hits.column(ROW_ADDRESS).to_numpy(), live),
        )
        return self._typed(found)

    def _in_rows(self, generation: WinningRows) -> pa.Table:
        """Search rows that are read first: those in memory, and flushed ones of an older schema."""
        needed = tuple(dict.fromkeys([*self._columns, *self._opened.key, self._query.column]))
        batches = list(generation.read(RowRequest(needed, self._query.filter_sql)))
        if not any(batch.num_rows for batch in batches):
            return self._typed(None)
        dataset = as_dataset(pa.Table.from_batches(batches))
        return self._typed(self._nearest(dataset, self._query.column, self._query.k, None, use_index=False))

    def _nearest(
        self, dataset: lance.LanceDataset, column: str, count: int, filter_sql: str | None, *, use_index: bool
    ) -> pa.Table:
        nearest: dict[str, Any] = {
            "column": column,
            "q": self._query.vector,
            "k": count,
            "metric": self._metric,
            "use_index": use_index,
        }
        if use_index:
            nearest["refine_factor"] = self._query.refine_factor
        if use_index and self._query.nprobes is not None:
            nearest["nprobes"] = self._query.nprobes
        columns = list(dict.fromkeys([*self._columns, *self._opened.key, DISTANCE_COLUMN]))
        with translated("search vectors", dataset.uri):
            return dataset.scanner(
                columns=columns, nearest=nearest, filter=filter_sql, prefilter=True, with_row_address=True
            ).to_table()

    def _typed(self, rows: pa.Table | None) -> pa.Table:
        own = self._opened.target.schema
        names = dict.fromkeys([*self._columns, *self._opened.key])
        schema = pa.schema([*(own.field(name) for name in names), pa.field(DISTANCE_COLUMN, pa.float32())])
        if rows is None:
            return schema.empty_table()
        arrays = [rows.column(field.name).cast(field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema).filter(rows.column(DISTANCE_COLUMN).is_valid())

    def _index_metric(self) -> str | None:
        """Return the metric of the base table's index on the column; None if there is none."""
        base = self._opened.base
        field_id = self._opened.target.field_ids[self._query.column]
        with translated("look at vector indexes", self._opened.uri):
            for index in base.describe_indices():
                if is_vector_index(str(index.index_type)) and list(index.fields) == [field_id]:
                    statistics: Mapping[str, Any] = base.stats.index_stats(index.name)
                    return str(statistics["indices"][0]["metric_type"]).lower()
        return None


def _until(k: int, search: Search, keep: Keep) -> pa.Table:
    """Search for more and more rows until enough of them are kept, or there are no more."""
    count = k
    while True:
        found = search(count)
        kept = found.filter(pa.array(keep(found)))
        if kept.num_rows >= k or found.num_rows < count:
            return kept.slice(0, k)
        count *= _GROWTH


def _check(query: VectorQuery, columns: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in columns if name not in schema.names]
    kind = schema.field(query.column).type if query.column in schema.names else None
    is_vector = kind is not None and pa.types.is_fixed_size_list(kind) and kind.list_size == len(query.vector)
    if unknown or not is_vector or query.k < 1:
        raise InvalidRequestError(
            "this vector search does not fit the table",
            remedy="name a vector column, pass a vector of its length and ask for at least one row",
            column=query.column,
            type=str(kind),
            vector_length=len(query.vector),
            k=query.k,
            unknown=unknown,
        )
