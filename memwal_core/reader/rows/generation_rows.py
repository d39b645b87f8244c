"""The rows of one generation, wherever they are stored, as rows of the base table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.errors import InvalidRequestError
from memwal_core.flushed.read import (
    ColumnMapping,
    KeyedGeneration,
    MergeTarget,
    SchemaMismatch,
    kept_rows,
    map_columns,
    read_keys,
    read_whole,
)
from memwal_core.format.columns import ROW_ADDRESS
from memwal_core.native.casting import cast
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.reader.rows.in_memory import filtered
from memwal_core.storage import ObjectStore

Inherit = Callable[[pa.Table, Sequence[str]], pa.Table]
"""From keys and column names to the values of older sources, one row per key (decision 0012)."""

_BACKFILL_ROWS = 65_536
"""Rows of an older schema that are backfilled at a time."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Which part of some rows is wanted; a condition may name any column, not only those of the result."""

    columns: tuple[str, ...]
    filter_sql: str | None = None
    batch_rows: int | None = None


class PrereadRows:
    """Rows of a small flushed MemTable, prefetched with its keys in write order. Given away once."""

    def __init__(self, columns: tuple[str, ...] = (), rows: pa.Table | None = None) -> None:
        self._columns = columns
        self._rows = rows

    def has(self, columns: tuple[str, ...]) -> bool:
        """Tell whether rows with exactly these columns are there."""
        return self._rows is not None and self._columns == columns

    def taken(self, columns: tuple[str, ...]) -> pa.Table | None:
        """Return the rows with exactly these columns, and forget them."""
        if not self.has(columns):
            return None
        rows, self._rows = self._rows, None
        return rows


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """A flushed MemTable, keys first. Row numbers count in write order, and ascend where rows are asked for."""

    source: GenerationSource
    keyed: KeyedGeneration
    target: MergeTarget
    backfill: Inherit
    preread: PrereadRows

    @property
    def keys(self) -> pa.Table:
        """The key columns, in write order."""
        return self.keyed.keys

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """For each key, whether the row deletes it."""
        return self.keyed.deleted

    def has(self, column: str) -> bool:
        """Tell whether the generation has a column of the table; other columns are backfilled."""
        return column in self.keyed.mapping.sources

    def is_cached(self, request: RowRequest) -> bool:
        """Tell whether rows can be returned without a read."""
        return request.filter_sql is None and (
            self.preread.has(request.columns) or set(request.columns) <= set(self.target.key)
        )

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read the rows ``wanted``: row numbers in write order, ascending.

        Lance filters while scanning unless columns, or fields inside of them, were changed since the flush.
        """
        if not len(wanted):
            return
        if request.filter_sql is None and set(request.columns) <= set(self.target.key):
            keys = self.keys.select(list(request.columns)).take(pa.array(wanted))
            yield from keys.to_batches(max_chunksize=request.batch_rows)
        elif request.filter_sql is None:
            yield from self._padded(wanted, request.columns, request.batch_rows)
        elif not self.keyed.mapping.is_direct:
            for batch in self._padded(wanted, tuple(self.target.schema.names), request.batch_rows):
                yield from filtered(batch, request.filter_sql, request.columns)
        else:
            yield from self._scanned(wanted, request)

    def _padded(
        self, wanted: npt.NDArray[np.int64], columns: tuple[str, ...], batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Read rows, backfilling the columns that the generation lacks, some thousand rows at a time."""
        schema = _selected(self.target.schema, columns)
        preread = self.preread.taken(columns)
        if preread is not None:
            part = MergeTarget(schema, self.target.field_ids, self.target.key)
            yield from self.keyed.chosen(preread, wanted, part, batch_rows)
            return
        sources = self.keyed.mapping.sources
        lacking = [name for name in columns if name not in sources]
        present = [name for name in columns if name in sources]
        if not lacking:
            part = MergeTarget(schema, self.target.field_ids, self.target.key)
            yield from self.keyed.batches(wanted, part, batch_rows)
            return
        needed = list(dict.fromkeys([*self.target.key, *present])) or [next(iter(sources))]
        part = MergeTarget(_selected(self.target.schema, needed), self.target.field_ids, self.target.key)
        for start in range(0, len(wanted), _BACKFILL_ROWS):
            batches = self.keyed.batches(wanted[start : start + _BACKFILL_ROWS], part, batch_rows)
            rows = pa.Table.from_batches(batches, schema=part.schema)
            values = self.backfill(rows.select(list(self.target.key)), lacking)
            arrays = [rows.column(name) if name in sources else values.column(name) for name in columns]
            yield from pa.Table.from_arrays(arrays, schema=schema).to_batches(max_chunksize=batch_rows)

    def _scanned(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        schema = _selected(self.target.schema, request.columns)
        live = self.addresses(wanted)
        with translated("scan a flushed MemTable", self.source.path):
            scanner = self.keyed.dataset.scanner(
                columns=list(request.columns),
                filter=request.filter_sql,
                batch_size=request.batch_rows,
                with_row_address=True,
            )
            for batch in scanner.to_batches():
                mask = is_among(batch.column(ROW_ADDRESS).to_numpy(), live)
                if mask.any():
                    kept = kept_rows(batch, mask)
                    columns = [cast(kept.column(field.name), field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def addresses(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the row addresses of rows, which ascend with the row numbers."""
        assert self.keyed.addresses is not None  # noqa: S101 - read_flushed keeps addresses
        return self.keyed.addresses[wanted]


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """A MemTable or the tail of a WAL; otherwise as ``FlushedRows``.

    Attributes:
        table: The columns that it has, under the base table's names.
    """

    source: GenerationSource
    table: pa.Table
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]
    target: MergeTarget
    missing: tuple[str, ...]
    backfill: Inherit

    def has(self, column: str) -> bool:
        """Tell whether the generation has a column of the table; other columns are backfilled."""
        return column not in self.missing

    def is_cached(self, request: RowRequest) -> bool:
        """Tell whether rows can be returned without a read."""
        return request.filter_sql is None and not any(name in self.missing for name in request.columns)

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read the rows ``wanted``: row numbers in write order, ascending. As strict as the table about NULL."""
        if not len(wanted):
            return
        schema = _selected(self.target.schema, request.columns)
        everything = len(wanted) == self.table.num_rows
        rows = self.table if everything else self.table.take(pa.array(wanted))
        columns = request.columns if request.filter_sql is None else tuple(self.target.schema.names)
        for batch in self._completed(rows, columns).to_batches(max_chunksize=request.batch_rows):
            found = iter([batch] if batch.num_rows else [])
            if request.filter_sql is not None:
                found = filtered(batch, request.filter_sql, request.columns)
            for each in found:
                yield pa.RecordBatch.from_arrays([each.column(name) for name in schema.names], schema=schema)

    def _completed(self, rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        lacking = [name for name in columns if name in self.missing]
        if not lacking:
            return rows
        values = self.backfill(rows.select(list(self.target.key)), lacking)
        for field in values.schema:
            rows = rows.append_column(field.with_nullable(True), values.column(field.name))
        return rows.select(list(dict.fromkeys([*columns, *self.target.key])))


def read_flushed(
    source: GenerationSource, dataset: lance.LanceDataset, target: MergeTarget, store: ObjectStore
) -> KeyedGeneration:
    """Read the keys of a flushed MemTable; its schema must fit the table's, see ``mapping_of``."""
    mapping_of(dataset, target)
    return read_keys(source.generation, source.path, dataset, target, None, with_addresses=True, within=store)


def read_flushed_whole(
    source: GenerationSource,
    dataset: lance.LanceDataset,
    target: MergeTarget,
    store: ObjectStore,
    columns: tuple[str, ...],
) -> tuple[KeyedGeneration, PrereadRows]:
    """Read the keys of a flushed MemTable together with ``columns`` of all its rows."""
    mapping_of(dataset, target)
    keyed, rows = read_whole(source.generation, source.path, dataset, target, columns, within=store)
    return keyed, PrereadRows(columns, rows)


def mapping_of(dataset: lance.LanceDataset, target: MergeTarget) -> ColumnMapping:
    """Return how a flushed MemTable's columns become those of the table.

    Raises:
        InvalidRequestError: They cannot: the table's schema has changed too much since the flush.
    """
    with translated("read the schema of a flushed MemTable", dataset.uri):
        mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch):
        raise unmappable(dataset.uri, mapping.reason)
    return mapping


def unmappable(uri: str, reason: str) -> InvalidRequestError:
    """Return the error of a flushed MemTable that cannot be read as rows of the table."""
    return InvalidRequestError(
        "a flushed MemTable cannot be read as rows of the table",
        remedy="undo the schema change that the reason names",
        uri=uri,
        reason=reason,
    )


def is_among(values: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Tell which values occur in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[places] == values
    return found


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])
