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
from memwal_core.reader.gap import IndexGap, plan_gap
from memwal_core.reader.in_memory import as_dataset
from memwal_core.reader.key_condition import condition_on
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan import ReadPlan
from memwal_core.reader.rows import ROW_ADDRESS, FlushedRows, RowRequest, is_among
from memwal_core.reader.sources import GenerationSource
from memwal_core.reader.winners import WinningRows, find_winners

DISTANCE_COLUMN = "_distance"
_GROWTH = 4

_KEYS_AT_ONCE = 500

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


@dataclass(frozen=True, slots=True)
class _Part:
    """What of a dataset is searched: all of it, its indexed fragments, or some fragments."""

    indexed_only: bool = False
    fragments: tuple[int, ...] = ()


_WHOLE = _Part()


@dataclass(frozen=True, slots=True)
class _Bridged:
    """What flushed MemTables found in place of base fragments, and unindexed fragments still to be scanned."""

    rows: pa.Table
    scanned: tuple[int, ...]


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
        self._index = _vector_index(opened.base, opened.target.field_ids[query.column])
        index_metric = _metric_of(opened.base, self._index) if self._index is not None else None
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

        def search(part: _Part, use_index: bool) -> pa.Table:
            filter_sql = query.filter_sql
            return _until(
                query.k,
                lambda count: self._nearest(base, query.column, count, filter_sql, use_index=use_index, part=part),
                keep,
            )

        gap = self._gap()
        if gap is None:
            found = search(_WHOLE, self._has_index)
        else:
            parts = [search(_Part(indexed_only=True), True), gap.rows]
            if gap.scanned:
                parts.append(search(_Part(fragments=gap.scanned), False))
            typed = pa.concat_tables([self._typed(each) for each in parts])
            found = typed.filter(pa.array(keep(typed)))
        if self._has_index and found.num_rows < query.k:
            # The partitions probed may be exhausted while the table is not.
            found = search(_WHOLE, False)
        return self._typed(found)

    def gap(self) -> IndexGap | None:
        """Return how the column's index lags behind merges; None without an index that can be used."""
        if not self._has_index or self._index is None:
            return None
        return plan_gap(self._opened.plan(), self._index, self._is_indexed)

    def _gap(self) -> _Bridged | None:
        """Search flushed MemTables in place of base fragments that the index lacks; None if none can."""
        gap = self.gap()
        if gap is None or gap.is_empty or self._index is None:
            return None
        base = self._opened.base
        near: list[pa.Table] = []
        keys: list[pa.Table] = []
        for region in self._opened.plan().regions:
            sources = gap.standing_in.get(region.region_id, ())
            if not sources:
                continue
            newer = len(region.generations)
            rows = [self._opened.rows(each) for each in (*region.generations, *sources)]
            winners = find_winners(region.region_id, rows, self._opened.key).generations
            # Keys of newer generations are superseded in the base table, wherever they are in it.
            keys.extend(each.rows.keys for each in winners[:newer])
            keys.extend(each.rows.keys.take(pa.array(each.live)) for each in winners[newer:])
            near.extend(self._in_generation(each) for each in winners[newer:] if len(each.live))
        served = KeySearch(pa.concat_tables(keys), self._opened.key)
        left_out: list[int] = []
        scanned: list[int] = []
        for fragment in self._opened.unindexed_fragments(self._index):
            with translated("read keys of unindexed rows", self._opened.uri):
                scanner = base.scanner(columns=list(self._opened.key), fragments=_fragments(base, [fragment]))
                is_served = served.found(scanner.to_table()).all()
            (left_out if is_served else scanned).append(fragment)
        if not left_out or not near:
            return None
        return _Bridged(self._of_base(pa.concat_tables(near), left_out), tuple(scanned))

    def _of_base(self, near: pa.Table, fragments: Sequence[int]) -> pa.Table:
        """Return the base table's rows of candidates, measured again: what it holds now is what counts."""
        if not near.num_rows:
            return self._typed(None)
        base = self._opened.base
        names = list(dict.fromkeys([*self._columns, *self._opened.key, self._query.column]))
        found = []
        filter_sql = self._query.filter_sql
        with translated("read candidates", self._opened.uri):
            for start in range(0, near.num_rows, _KEYS_AT_ONCE):
                keys = near.select(list(self._opened.key)).slice(start, _KEYS_AT_ONCE)
                condition = condition_on(keys, self._opened.key)
                found.append(
                    base.scanner(
                        columns=names,
                        filter=condition if filter_sql is None else f"({condition}) AND ({filter_sql})",
                        fragments=_fragments(base, fragments),
                    ).to_table()
                )
        rows = pa.concat_tables(found)
        if not rows.num_rows:
            return self._typed(None)
        return self._typed(
            self._nearest(as_dataset(rows), self._query.column, rows.num_rows, None, use_index=False, part=_WHOLE)
        )

    def _is_indexed(self, source: GenerationSource) -> bool:
        """Tell whether a flushed MemTable has a vector index on the column, under the column's present name."""
        try:
            dataset = self._opened.dataset(source)
        except GenerationGoneError:
            return False
        return (
            dataset is not None
            and _vector_index(dataset, self._opened.target.field_ids[self._query.column]) is not None
        )

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
            lambda count: self._nearest(dataset, query.column, count, query.filter_sql, use_index=True, part=_WHOLE),
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
        return self._typed(
            self._nearest(dataset, self._query.column, self._query.k, None, use_index=False, part=_WHOLE)
        )

    def _nearest(
        self,
        dataset: lance.LanceDataset,
        column: str,
        count: int,
        filter_sql: str | None,
        *,
        use_index: bool,
        part: _Part,
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
                columns=columns,
                nearest=nearest,
                filter=filter_sql,
                prefilter=True,
                with_row_address=True,
                fast_search=part.indexed_only,
                fragments=_fragments(dataset, part.fragments) if part.fragments else None,
            ).to_table()

    def _typed(self, rows: pa.Table | None) -> pa.Table:
        own = self._opened.target.schema
        names = dict.fromkeys([*self._columns, *self._opened.key])
        schema = pa.schema([*(own.field(name) for name in names), pa.field(DISTANCE_COLUMN, pa.float32())])
        if rows is None:
            return schema.empty_table()
        arrays = [rows.column(field.name).cast(field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema).filter(rows.column(DISTANCE_COLUMN).is_valid())


def _fragments(dataset: lance.LanceDataset, ids: Sequence[int]) -> list[lance.LanceFragment]:
    found = (dataset.get_fragment(each) for each in ids)
    return [fragment for fragment in found if fragment is not None]


def _vector_index(dataset: lance.LanceDataset, field_id: int) -> str | None:
    """Return the name of a dataset's vector index on a column, or None."""
    with translated("look at vector indexes", dataset.uri):
        for index in dataset.describe_indices():
            if is_vector_index(str(index.index_type)) and list(index.fields) == [field_id]:
                return str(index.name)
    return None


def _metric_of(dataset: lance.LanceDataset, index: str) -> str:
    with translated("look at a vector index", dataset.uri):
        statistics: Mapping[str, Any] = dataset.stats.index_stats(index)
    return str(statistics["indices"][0]["metric_type"]).lower()


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
