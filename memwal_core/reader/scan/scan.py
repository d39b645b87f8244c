"""Scans: the newest version of every row of a view, streamed; memory holds keys and a few batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.read_sizes import PREFETCH_BYTES, rows_at_once
from memwal_core.errors import InvalidRequestError
from memwal_core.flushed.read import kept_rows
from memwal_core.format.region_manifest.model import BASE_TABLE_GENERATION
from memwal_core.native.casting import no_rows
from memwal_core.reader.analysis.trace import ROWS, ROWS_MASKED
from memwal_core.reader.arguments import require_columns, require_count, require_kind
from memwal_core.reader.explain import explain_scan
from memwal_core.reader.freshness import Freshness
from memwal_core.reader.names import BASE, SCAN, STALE
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.rows.deletion_mask import DeletionMask
from memwal_core.reader.rows.generation_rows import RowRequest
from memwal_core.reader.rows.winners import RegionWinners, WinningRows, superseded_keys
from memwal_core.reader.scan.prefetch import read_winners

GENERATION_COLUMN = "_gen"
"""Virtual column: the generation that a row is from, -1 for the base table. A table's own column of this name hides
it."""


_PREFETCH_BATCHES = 8
"""Besides ``PREFETCH_BYTES``, how far Lance may decode ahead of a slow caller, so that memory does not grow with the
base table. Lance holds whole pages, and a table written a million rows at a time has pages of that size."""

_PREFETCH_ROWS = 262_144
_MAX_PREFETCHED_FRAGMENTS = 16
"""Rows of the fragments read at a time, and the maximum number of fragments."""

_NARROW_BYTES = 64
"""Columns besides the key count as narrow up to this total width: copying the remaining rows then costs less than
finding the superseded ones first."""

_DIRECTIONS = ("ascending", "descending")
_PAIR = 2

_SORT_ROWS = 65_536
"""Rows gathered beyond the limit before the best of them are chosen."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What a scan returns.

    Attributes:
        columns: Columns of the result, in order, ``_gen`` among them if wanted; all columns of the table if None.
        filter_sql: Condition on the newest versions of rows, in Lance's SQL; None for all.
        limit: Maximum number of rows; None for all.
        order_by: Sort columns with their directions, a subset of ``columns``; without a limit all rows are kept in
            memory.
        batch_rows: Maximum rows read at once; Lance's default if None.
    """

    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None
    limit: int | None = None
    order_by: tuple[tuple[str, Literal["ascending", "descending"]], ...] = ()
    batch_rows: int | None = None


class Scan:
    """One scan of a view; each method runs it anew.

    Raises:
        InvalidRequestError: A column does not exist, the limit is negative, or Lance does not accept the filter.
            Correct the request.
    """

    def __init__(self, opened: OpenedTable, request: ScanRequest) -> None:
        require_kind("request", request, ScanRequest)
        self._opened = opened
        self._request = request
        self._columns = require_columns(request.columns, opened.target.schema, GENERATION_COLUMN)
        _check(request, self._columns, opened.target.schema)
        self._plan = opened.plan(request.filter_sql)

    @property
    def plan(self) -> ReadPlan:
        """What the scan reads."""
        return self._plan

    @property
    def freshness(self) -> Freshness:
        """How new the rows are."""
        return self._plan.freshness

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result; its metadata states the freshness."""
        own = self._opened.target.schema
        fields = [
            own.field(name) if name in own.names else pa.field(name, pa.int64(), nullable=False)
            for name in self._columns
        ]
        return pa.schema(fields, metadata=dict(self.freshness.metadata()))

    def explain(self) -> str:
        """Return the plan as text."""
        return explain_scan(self._plan, self._opened.key, self._request.filter_sql)

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream; the keys of regions are read before it begins.

        Raises:
            GenerationGoneError: A flushed MemTable was collected; take a new view.
        """
        # A limit may end the scan before newer rows are read.
        prefetch = self._request_of(self._own_columns()) if self._request.limit is None else None
        with self._opened.explaining():
            winners = self._opened.winners(self._plan.regions, prefetch)
        rows = self._explained(self._limited(self._typed(self._all(winners, self._columns))))
        return pa.RecordBatchReader.from_batches(self.schema, rows)

    def _explained(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._opened.explaining():
            yield from batches

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table; errors as for ``batches``."""
        return self.batches().read_all()

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas ships no types
        """Return all rows as a pandas DataFrame; errors as for ``batches``."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """Count the rows, reading keys only; errors as for ``batches``."""
        with self._opened.explaining():
            winners = self._opened.winners(self._plan.regions)
            with translated("count rows", self._opened.uri):
                base = self._count_base(winners)
            rows = base + sum(self._count_of(generation) for region in winners for generation in region.generations)
        limit = self._request.limit
        return rows if limit is None else min(rows, limit)

    def _count_base(self, winners: Sequence[RegionWinners]) -> int:
        filter_sql = self._request.filter_sql
        if not winners or not self._opened.key:
            return self._counted(lambda: int(self._opened.base.count_rows(filter_sql)), None)
        mask = self._mask()
        if mask is None:
            superseded = superseded_keys(winners, self._opened.key)
            return sum(batch.num_rows for batch in self._by_key(superseded, self._opened.key))
        if filter_sql is None:
            return self._counted(lambda: int(self._opened.survey.state.num_rows) - len(mask.row_ids), mask)
        # Lance counts the rows of a scan only if the scan has no columns.
        scanner = self._opened.base.scanner(
            columns=[], with_row_id=True, filter=filter_sql, row_addr_blocklist=mask.blocklist
        )
        return self._counted(lambda: int(scanner.count_rows()), mask)

    def _counted(self, count: Callable[[], int], mask: DeletionMask | None) -> int:
        with self._opened.trace.step("CountExec", BASE) as counts:
            counts.update({ROWS: count(), ROWS_MASKED: 0 if mask is None else len(mask.row_ids)})
            return counts[ROWS]

    def _count_of(self, generation: WinningRows) -> int:
        if self._request.filter_sql is None:
            return len(generation.live)
        request = RowRequest(self._opened.counted, self._request.filter_sql, self._request.batch_rows)
        return sum(batch.num_rows for batch in generation.read(request))

    def _all(self, winners: Sequence[RegionWinners], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield base rows that are not superseded, then the winners; with ``_gen`` if it was asked for."""
        own = self._own_columns()
        yield from (_tagged(each, columns, BASE_TABLE_GENERATION) for each in self._base(winners, own))
        generations = [generation for region in winners for generation in region.generations]
        read = read_winners(generations, self._request_of(own))
        yield from (_tagged(each, columns, number) for number, each in read)

    def _own_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self._columns if name in self._opened.target.schema.names)

    def _request_of(self, columns: tuple[str, ...]) -> RowRequest:
        return RowRequest(columns or self._opened.counted, self._request.filter_sql, self._request.batch_rows)

    def _base(self, winners: Sequence[RegionWinners], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        superseded = superseded_keys(winners, self._opened.key)
        mask = self._mask() if superseded is not None else None
        limit = self._request.limit or None if not self._request.order_by else None
        with translated("scan the base table", self._opened.uri):
            if superseded is not None and mask is None:
                yield from self._by_key(superseded, columns)
                return
            with self._opened.trace.step(SCAN, BASE) as counts:
                counts[ROWS_MASKED] = 0 if mask is None else len(mask.row_ids)
            scanned = self._scanner(columns or self._opened.counted, limit, mask).to_batches()
            yield from self._opened.trace.batches(SCAN, BASE, scanned)

    def _mask(self) -> DeletionMask | None:
        """Return the deletion mask, unless computing it would cost more than the scan can save.

        Computing it reads all keys of the base table. A scan with a selective filter or a limit, or of keys and narrow
        columns, reads hardly more than that. It compares the keys of the rows it reads instead.
        """
        reads_little = (
            self._request.filter_sql is not None
            or (self._request.limit is not None and not self._request.order_by)
            or self._is_narrow()
        )
        return self._opened.known_mask() if reads_little else self._opened.mask()

    def _is_narrow(self) -> bool:
        schema = self._opened.target.schema
        kinds = [schema.field(name).type for name in self._own_columns() if name not in self._opened.key]
        return sum(_width_of(kind) for kind in kinds) <= _NARROW_BYTES

    def _by_key(self, superseded: KeySearch | None, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        key = self._opened.key
        needed = (*columns, *(name for name in key if name not in columns))
        scanned = self._scanner(needed, None, None).to_batches()
        for batch in self._opened.trace.batches(SCAN, BASE, scanned):
            if superseded is None:
                yield batch
                continue
            with self._opened.trace.step(STALE, BASE) as counts:
                kept = _without(batch, superseded, key)
                counts.update({ROWS: kept.num_rows, ROWS_MASKED: batch.num_rows - kept.num_rows})
            yield kept

    def _scanner(self, columns: Sequence[str], limit: int | None, mask: DeletionMask | None) -> lance.LanceScanner:
        return self._opened.base.scanner(
            columns=list(columns),
            filter=self._request.filter_sql,
            limit=limit,
            batch_size=rows_at_once(self._opened.base, columns, self._request.batch_rows),
            row_addr_blocklist=None if mask is None else mask.blocklist,
            io_buffer_size=PREFETCH_BYTES,
            batch_readahead=_PREFETCH_BATCHES,
            fragment_readahead=self._prefetched_fragments(),
        )

    def _prefetched_fragments(self) -> int:
        """Return how many fragments to read at a time: Lance buffers much of a large one, whatever its buffer size."""
        rows = self._opened.survey.state.num_rows // max(1, len(self._opened.base.fragment_ids()))
        return max(1, min(_MAX_PREFETCHED_FRAGMENTS, _PREFETCH_ROWS // max(1, rows)))

    def _typed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _limited(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._request.order_by:
            batches = _ordered(batches, self._request, self.schema)
        left = self._request.limit
        for batch in batches:
            if left is None:
                yield batch
                continue
            if left == 0:
                return
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)


def _width_of(kind: pa.DataType) -> float:
    """Return the bytes of one value, infinity for types of variable length."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return math.inf


def _without(batch: pa.RecordBatch, superseded: KeySearch, key: Sequence[str]) -> pa.RecordBatch:
    found = superseded.found(pa.Table.from_batches([batch.select(list(key))]))
    return kept_rows(batch, ~found) if found.any() else batch


def _tagged(batch: pa.RecordBatch, columns: Sequence[str], generation: int) -> pa.RecordBatch:
    if GENERATION_COLUMN not in columns or GENERATION_COLUMN in batch.schema.names:
        return batch.select(list(columns)) if columns else batch
    tag = pa.array(np.full(batch.num_rows, generation, dtype=np.int64))
    arrays = [tag if name == GENERATION_COLUMN else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _ordered(batches: Iterable[pa.RecordBatch], request: ScanRequest, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if request.limit is not None and rows > request.limit + _SORT_ROWS:
            gathered = _best(gathered, request, schema).to_batches()
            rows = sum(each.num_rows for each in gathered)
    yield from _best(gathered, request, schema).to_batches()


def _best(batches: Sequence[pa.RecordBatch], request: ScanRequest, schema: pa.Schema) -> pa.Table:
    ordered = pa.Table.from_batches(batches, schema=schema).sort_by(list(request.order_by))
    return ordered if request.limit is None else ordered.slice(0, request.limit)


def _check(request: ScanRequest, columns: Sequence[str], schema: pa.Schema) -> None:
    if request.limit is not None:
        require_count("limit", request.limit)
    if request.batch_rows is not None:
        require_count("batch_rows", request.batch_rows, 1)
    require_no_blobs(pa.schema([schema.field(name) for name in columns if name in schema.names]), "read")
    sorting = _sorting(request.order_by)
    unsorted = [name for name in sorting if name not in columns]
    if unsorted:
        raise InvalidRequestError(
            "rows cannot be sorted by columns that are not returned",
            remedy="return these columns, too, or sort by others",
            not_returned=unsorted,
            columns=list(columns),
        )
    _require_sortable(pa.schema([schema.field(name) for name in sorting if name in schema.names]))


def _sorting(order_by: Sequence[tuple[str, str]]) -> list[str]:
    """Return the columns to sort by; ``InvalidRequestError`` if they are not given with their directions."""
    is_list = isinstance(order_by, list | tuple)
    pairs = [each for each in order_by if isinstance(each, list | tuple) and len(each) == _PAIR] if is_list else []
    names = [name for name, direction in pairs if isinstance(name, str) and direction in _DIRECTIONS]
    if not is_list or len(names) != len(order_by):
        raise InvalidRequestError(
            "the order is not understood",
            remedy='pass pairs of a column and its direction, as in order_by=(("id", "ascending"),)',
            order_by=order_by,
            directions=_DIRECTIONS,
        )
    return names


def _require_sortable(schema: pa.Schema) -> None:
    for field in schema:
        try:
            no_rows(pa.schema([field])).sort_by(field.name)
        except pa.ArrowException as error:
            raise InvalidRequestError(
                "rows cannot be sorted by a column of this type",
                remedy="sort by another column, or sort the rows that are returned",
                column=field.name,
                type=str(field.type),
            ) from error
