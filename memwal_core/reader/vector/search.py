"""Vector search: the nearest of the newest versions of rows, by each source's own index or a flat search.

Distances of all sources are comparable, because candidates of quantized indexes are measured again exactly. Superseded
candidates are found by key and not by a filter, so none is dropped wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.indexes.inventory import is_vector_index
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import DISTANCE_COLUMN, ROW_ADDRESS
from memwal_core.native.casting import cast, no_rows
from memwal_core.reader.analysis.trace import ROWS, ROWS_MASKED
from memwal_core.reader.arguments import query_vector, require_columns, require_count, require_free, require_kind
from memwal_core.reader.explain import explain_vector_search
from memwal_core.reader.index_gap.bridge import bridge_gap
from memwal_core.reader.index_gap.gap import IndexGap, plan_gap
from memwal_core.reader.names import BASE, NEAREST, STALE, source_name
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.reader.rows.deletion_mask import DeletionMask
from memwal_core.reader.rows.generation_rows import FlushedRows, RowRequest, is_among
from memwal_core.reader.rows.in_memory import as_dataset
from memwal_core.reader.rows.key_condition import condition_on
from memwal_core.reader.rows.winners import RegionWinners, WinningRows, superseded_keys
from memwal_core.reader.vector.cached_vectors import CachedVectors, cache_vectors

_GROWTH = 4
_SPARE = 2
_FEW = 0.02
"""Below this share, superseded rows are dropped after a search instead of being masked in it."""
_EXTRA = 1
"""Rows searched for beyond the expected number of superseded ones."""

_KEYS_AT_ONCE = 500

Search = Callable[[int], pa.Table]
Keep = Callable[[pa.Table], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """A search for nearest rows.

    Attributes:
        column: A fixed-size list of floats.
        vector: As many numbers as the column's lists have.
        k: Maximum number of rows.
        columns: Columns of the result besides ``_distance``; all if None.
        filter_sql: Only rows that fulfil it are ranked; None for all.
        metric: ``l2``, ``cosine`` or ``dot``, in any case; that of the base table's index if None, else ``l2``.
        nprobes: Partitions searched per index, and all of them where these hold too few rows; Lance decides if None.
        refine_factor: Candidates measured exactly, as a multiple of ``k``, per indexed source.
    """

    column: str
    vector: Sequence[float] | npt.NDArray[np.floating]
    k: int = 10
    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None
    metric: str | None = None
    nprobes: int | None = None
    refine_factor: int = 1


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a dataset to search; all fragments if ``fragments`` is empty.

    Without ``use_index`` every vector is measured; ``indexed_only`` skips fragments that the index lacks.
    """

    use_index: bool
    indexed_only: bool = False
    fragments: tuple[int, ...] = ()
    mask: DeletionMask | None = None


_FLAT = _Part(use_index=False)
_INDEXED = _Part(use_index=True)


@dataclass(frozen=True, slots=True)
class _Bridged:
    """Rows that flushed MemTables found in place of base fragments, and unindexed fragments still to be scanned."""

    rows: pa.Table
    scanned: tuple[int, ...]


class VectorSearch:
    """One vector search of a view.

    Raises:
        InvalidRequestError: The column is not a vector column, or the query does not fit it.
    """

    def __init__(self, opened: OpenedTable, query: VectorQuery) -> None:
        require_kind("query", query, VectorQuery)
        self._opened = opened
        self._query = query
        self._vector = query_vector(query.vector)
        self._columns = require_columns(query.columns, opened.target.schema)
        _check(query, opened.target.schema)
        self._plan = opened.plan(query.filter_sql)
        found = opened.remembered(("index of", query.column), self._look_at_index)
        self._index, self._segments, index_metric, is_trained = found
        self._metric = (query.metric or index_metric or "l2").lower()
        self._has_index = is_trained and index_metric == self._metric

    def _look_at_index(self) -> tuple[str | None, list[str] | None, str | None, bool]:
        """Return name and segments of the base table's index of the column, its metric, and whether it is trained.

        Segments are named only where there are several indexes, of which Lance would search another one.
        """
        base = self._opened.base
        found = _vector_indexes(base, self._opened.target.field_ids[self._query.column])
        if not found:
            return None, None, None, False
        segments = [str(each.uuid) for each in found[0].segments] if len(found) > 1 else None
        return (str(found[0].name), segments, *_metric_of(base, found[0]))

    @property
    def plan(self) -> ReadPlan:
        """What the search reads."""
        return self._plan

    def explain(self) -> str:
        """Return the plan as text."""
        return explain_vector_search(self._plan, self._query.k, self.gap())

    def run(self) -> pa.Table:
        """Return the nearest rows, nearest first, with ``_distance``; see ``TableView.vector_search``."""
        winners = self._opened.winners(self._plan.regions)
        superseded = self._superseded(winners)
        cached = self._cached(winners, superseded)
        parts = [self._in_base(superseded, None)[0]] if cached is None else self._in_base_and_cached(superseded, cached)
        for region in winners:
            uncached = (each for each in region.generations if len(each.live) and not (cached and cached.covers(each)))
            parts.extend(self._in_generation(generation) for generation in uncached)
        ranked = pa.concat_tables(parts)
        result = ranked.sort_by([(DISTANCE_COLUMN, "ascending")]).slice(0, self._query.k)
        result = result.select([*self._columns, DISTANCE_COLUMN])
        return result.replace_schema_metadata(dict(self._plan.freshness.metadata()))

    def _superseded(self, winners: Sequence[RegionWinners]) -> KeySearch | None:
        """Return ``superseded_keys``, which searches without a filter share."""
        if self._query.filter_sql is not None:
            return superseded_keys(winners, self._opened.key)
        return self._opened.remembered(("superseded keys",), lambda: superseded_keys(winners, self._opened.key))

    def _cached(self, winners: Sequence[RegionWinners], superseded: KeySearch | None) -> CachedVectors | None:
        """Return the small sources, cached by the first search; None if rows must be filtered first."""
        if self._query.filter_sql is not None:
            return None
        column, index = self._query.column, self._index if self._has_index else None

        def cache() -> CachedVectors:
            unindexed = () if index is None else self._opened.unindexed_fragments(index)
            every = [generation for region in winners for generation in region.generations]
            return cache_vectors(self._opened, column, unindexed, every, superseded)

        return self._opened.remembered(("cached vectors", column, index or ""), cache)

    def _in_base_and_cached(self, superseded: KeySearch | None, cached: CachedVectors) -> list[pa.Table]:
        """Search the base table's index and the cached rows; read only those cached rows that are near enough."""
        k, gap_rows = self._query.k, len(cached.base_ids)
        found, is_complete = self._in_base(superseded, cached)
        # If the whole base table was searched after all, its cached rows are among the rows found.
        left_out = gap_rows if is_complete else 0
        with self._opened.trace.step(NEAREST, "rows in memory") as counts:
            near = cached.nearest(self._vector, k + left_out, self._metric)
            counts[ROWS] = len(near.numbers)
        chosen = near.numbers >= left_out
        if found.num_rows >= k:
            chosen &= near.distances <= np.partition(found.column(DISTANCE_COLUMN).to_numpy(), k - 1)[k - 1]
        schema = pa.schema([field for field in found.schema if field.name != DISTANCE_COLUMN])
        rows = cached.read(near.numbers[chosen], schema)
        distances = pa.array(near.distances[chosen], pa.float32())
        return [found, rows.append_column(found.schema.field(DISTANCE_COLUMN), distances)]

    def _in_base(self, superseded: KeySearch | None, cached: CachedVectors | None) -> tuple[pa.Table, bool]:
        """Return the nearest base rows without the cached ones, and whether these are among them after all."""
        base, query = self._opened.base, self._query
        mask, first = self._base_mask(superseded)

        def keep(rows: pa.Table) -> npt.NDArray[np.bool_]:
            if superseded is None:
                return np.ones(rows.num_rows, dtype=bool)
            return ~superseded.found(rows.select(list(self._opened.key)))

        def search(part: _Part) -> pa.Table:
            with self._opened.trace.step(NEAREST, BASE) as counts:
                found = _until(query.k, first, lambda count: self._nearest(base, count, query.filter_sql, part), kept)
                counts[ROWS] = found.num_rows
                counts["rows_excluded"] = 0 if part.mask is None else len(part.mask.row_ids)
                return found

        def kept(rows: pa.Table) -> npt.NDArray[np.bool_]:
            mask = keep(rows)
            with self._opened.trace.step(STALE, BASE) as counts:
                counts[ROWS_MASKED] = rows.num_rows - int(np.count_nonzero(mask))
            return mask

        others = 0
        if cached is not None and cached.has_gap and self._has_index:
            found, others = search(_Part(use_index=True, indexed_only=True, mask=mask)), len(cached.base_ids)
        else:
            found = self._in_base_and_gap(search, keep, mask)
        if self._has_index and found.num_rows + others < query.k:
            # The probed partitions may hold too few rows while the table has more.
            return self._typed(search(_Part(use_index=False, mask=mask))), True
        return self._typed(found), not others

    def _base_mask(self, superseded: KeySearch | None) -> tuple[DeletionMask | None, int]:
        """Return the rows to skip in the base table, and how many to search for at first.

        Dropping a few superseded rows from the result costs less than a mask in every search.
        """
        k = self._query.k
        if superseded is None:
            return None, k
        share = len(superseded) / max(1, self._opened.survey.state.num_rows)
        if share <= _FEW:
            return None, k + _EXTRA + math.ceil(_SPARE * share * k)
        mask = self._opened.known_mask()
        return mask, k if mask is not None else k * _SPARE

    def _in_base_and_gap(self, search: Callable[[_Part], pa.Table], keep: Keep, mask: DeletionMask | None) -> pa.Table:
        """Search the index and, for base rows that it lacks, flushed MemTables if they can stand in."""
        gap = self._gap()
        if gap is None:
            return search(_Part(self._has_index, mask=mask))
        parts = [search(_Part(use_index=True, indexed_only=True, mask=mask)), gap.rows]
        if gap.scanned:
            parts.append(search(_Part(use_index=False, fragments=gap.scanned, mask=mask)))
        typed = pa.concat_tables([self._typed(each) for each in parts])
        return typed.filter(pa.array(keep(typed)))

    def gap(self) -> IndexGap | None:
        """Return how the column's index lags behind merges; None without a usable index."""
        if not self._has_index or self._index is None:
            return None
        index = self._index
        return self._opened.remembered(("gap", index), lambda: plan_gap(self._opened.plan(), index, self._is_indexed))

    def _gap(self) -> _Bridged | None:
        """Search flushed MemTables in place of base fragments that the index lacks; None if none can stand in."""
        gap = self.gap()
        if gap is None or gap.is_empty:
            return None
        bridge = self._opened.remembered(("bridge", gap.index), lambda: bridge_gap(self._opened, gap))
        if not bridge.left_out:
            return None
        near = [self._in_generation(each.winning) for each in bridge.standing]
        return _Bridged(self._of_base(pa.concat_tables(near), bridge.left_out), bridge.scanned)

    def _of_base(self, near: pa.Table, fragments: Sequence[int]) -> pa.Table:
        """Return the base table's rows of candidates, measured again: only the values in the base table count."""
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
                        filter=condition if filter_sql is None else f"({condition}) AND ({filter_sql}\n)",
                        fragments=fragments_of(base, fragments),
                    ).to_table()
                )
        rows = pa.concat_tables(found)
        if not rows.num_rows:
            return self._typed(None)
        return self._typed(self._nearest(as_dataset(rows), rows.num_rows, None, _FLAT))

    def _is_indexed(self, source: GenerationSource) -> bool:
        """Tell whether a flushed MemTable has a vector index on the column, found by field id."""
        try:
            dataset = self._opened.dataset(source)
        except GenerationGoneError:
            return False
        return dataset is not None and self._has_vector_index(dataset)

    def _has_vector_index(self, dataset: lance.LanceDataset) -> bool:
        return bool(_vector_indexes(dataset, self._opened.target.field_ids[self._query.column]))

    def _in_generation(self, generation: WinningRows) -> pa.Table:
        with self._opened.trace.step(NEAREST, source_name(generation.rows.source)) as counts:
            found = self._searched(generation)
            counts[ROWS] = found.num_rows
            return found

    def _searched(self, generation: WinningRows) -> pa.Table:
        rows = generation.rows
        if not isinstance(rows, FlushedRows):
            return self._in_rows(generation)
        if not rows.keyed.mapping.is_direct:
            return self._in_rows(generation)
        live = rows.addresses(generation.live)
        dataset, query = rows.keyed.dataset, self._query

        def search(part: _Part) -> pa.Table:
            return _until(
                query.k,
                query.k,
                lambda count: self._nearest(dataset, count, query.filter_sql, part),
                lambda hits: is_among(hits.column(ROW_ADDRESS).to_numpy(), live),
            )

        found = search(_INDEXED)
        if found.num_rows < min(query.k, len(live)) and self._has_vector_index(dataset):
            found = search(_FLAT)  # The probed partitions may hold too few rows, as in the base table.
        return self._typed(found)

    def _in_rows(self, generation: WinningRows) -> pa.Table:
        """Search rows that are read first: those in memory, and flushed ones of an older schema."""
        needed = tuple(dict.fromkeys([*self._columns, *self._opened.key, self._query.column]))
        batches = list(generation.read(RowRequest(needed, self._query.filter_sql)))
        if not any(batch.num_rows for batch in batches):
            return self._typed(None)
        dataset = as_dataset(pa.Table.from_batches(batches))
        return self._typed(self._nearest(dataset, self._query.k, None, _FLAT))

    def _nearest(self, dataset: lance.LanceDataset, count: int, filter_sql: str | None, part: _Part) -> pa.Table:
        nearest: dict[str, Any] = {
            "column": self._query.column,
            "q": self._vector,
            "k": count,
            "metric": self._metric,
            "use_index": part.use_index,
        }
        if part.use_index:
            nearest["refine_factor"] = self._query.refine_factor
        if part.use_index and self._query.nprobes is not None:
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
                index_segments=self._segments if part.indexed_only else None,
                # Of fragments that a scalar index lacks, a fast search that filters by it would find no row.
                use_scalar_index=False if part.indexed_only else None,
                fragments=fragments_of(dataset, part.fragments) if part.fragments else None,
                row_addr_blocklist=None if part.mask is None else part.mask.blocklist,
            ).to_table()

    def _typed(self, rows: pa.Table | None) -> pa.Table:
        own = self._opened.target.schema
        names = dict.fromkeys([*self._columns, *self._opened.key])
        schema = pa.schema([*(own.field(name) for name in names), pa.field(DISTANCE_COLUMN, pa.float32())])
        if rows is None:
            return no_rows(schema)
        arrays = [cast(rows.column(field.name), field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema).filter(rows.column(DISTANCE_COLUMN).is_valid())


def _vector_indexes(dataset: lance.LanceDataset, field_id: int) -> list[lance.IndexDescription]:
    """Return a dataset's vector indexes on a column."""
    with translated("list vector indexes", dataset.uri):
        return [
            index
            for index in dataset.describe_indices()
            if is_vector_index(str(index.index_type)) and list(index.fields) == [field_id]
        ]


def _metric_of(dataset: lance.LanceDataset, index: lance.IndexDescription) -> tuple[str, bool]:
    """Return the metric of an index, and whether it is trained; an untrained one cannot be searched."""
    with translated("read the statistics of a vector index", dataset.uri):
        statistics: Mapping[str, Any] = dataset.stats.index_stats(index.name)["indices"][0]
    if "metric_type" in statistics:
        return str(statistics["metric_type"]).lower(), True
    return str(index.details["metric_type"]).lower(), False


def _until(k: int, first: int, search: Search, keep: Keep) -> pa.Table:
    """Search for ``first`` rows, then for more, until enough are kept or no more are found."""
    count = first
    while True:
        found = search(count)
        kept = found.filter(pa.array(keep(found)))
        if kept.num_rows >= k or found.num_rows < count:
            return kept.slice(0, k)
        count *= _GROWTH


def _check(query: VectorQuery, schema: pa.Schema) -> None:
    require_count("k", query.k, 1)
    require_count("refine_factor", query.refine_factor, 1)
    if query.nprobes is not None:
        require_count("nprobes", query.nprobes, 1)
    if query.metric is not None:
        require_kind("metric", query.metric, str, "pass l2, cosine or dot")
    require_free(schema.names, DISTANCE_COLUMN)
    kind = schema.field(query.column).type if query.column in schema.names else None
    is_vector = kind is not None and pa.types.is_fixed_size_list(kind) and kind.list_size == len(query.vector)
    if not is_vector:
        raise InvalidRequestError(
            "this vector search does not fit the table",
            remedy="name a vector column of the table, and pass a vector of its length",
            column=query.column,
            type=str(kind),
            vector_length=len(query.vector),
        )
