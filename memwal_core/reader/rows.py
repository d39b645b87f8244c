"""The rows of one generation, wherever they are, as rows of the base table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.errors import InvalidRequestError
from memwal_core.generations import (
    ColumnMapping,
    KeyedGeneration,
    MergeTarget,
    SchemaMismatch,
    kept_rows,
    map_columns,
    read_keys,
)
from memwal_core.memtable import TOMBSTONE_COLUMN
from memwal_core.reader.in_memory import filtered
from memwal_core.reader.sources import GenerationSource
from memwal_core.reader.survey import check_unflushed_schema

ROW_ADDRESS = "_rowaddr"

Inherit = Callable[[pa.Table, Sequence[str]], pa.Table]
"""From keys and names of columns to the values of older sources, row by row (decision 0012)."""

_INHERITED_ROWS = 65_536
"""Rows of an older schema that are completed from older sources at once."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Which part of some rows is wanted.

    Attributes:
        columns: Columns of the result, in order.
        filter_sql: Condition on the rows, which may name any column; None for all.
        batch_rows: Upper bound of rows per batch; Lance's default if None.
    """

    columns: tuple[str, ...]
    filter_sql: str | None = None
    batch_rows: int | None = None


class GenerationRows(Protocol):
    """One generation, keys first."""

    @property
    def source(self) -> GenerationSource:
        """Where it is from."""
        ...

    @property
    def keys(self) -> pa.Table:
        """The key columns, in write order."""
        ...

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """For each of them, whether it deletes its key."""
        ...

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read some rows.

        Args:
            wanted: Row numbers in write order, ascending.
            request: What of them.
        """
        ...


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """A flushed MemTable; see ``GenerationRows``.

    Attributes:
        source: Where it is from.
        keyed: Its keys and how to read it.
        target: The base table's side.
        inherit: Gives the values of columns that it lacks.
    """

    source: GenerationSource
    keyed: KeyedGeneration
    target: MergeTarget
    inherit: Inherit

    @property
    def keys(self) -> pa.Table:
        """The key columns, in write order."""
        return self.keyed.keys

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """For each of them, whether it deletes its key."""
        return self.keyed.deleted

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read some rows; a condition goes into Lance's scan where the columns have the table's names."""
        if not len(wanted):
            return
        mapping = self.keyed.mapping
        if request.filter_sql is None and set(request.columns) <= set(self.target.key):
            keys = self.keys.select(list(request.columns)).take(pa.array(wanted))
            yield from keys.to_batches(max_chunksize=request.batch_rows)
        elif request.filter_sql is None:
            yield from self._padded(wanted, request.columns, request.batch_rows)
        elif mapping.missing or mapping.renamed:
            for batch in self._padded(wanted, tuple(self.target.schema.names), request.batch_rows):
                yield from filtered(batch, request.filter_sql, request.columns)
        else:
            yield from self._scanned(wanted, request)

    def _padded(
        self, wanted: npt.NDArray[np.int64], columns: tuple[str, ...], batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Read rows; columns that the generation lacks come from older sources, some thousand rows at a time."""
        schema = _selected(self.target.schema, columns)
        sources = self.keyed.mapping.sources
        lacking = [name for name in columns if name not in sources]
        present = [name for name in columns if name in sources]
        if not lacking:
            part = MergeTarget(schema, self.target.field_ids, self.target.key)
            yield from self.keyed.batches(wanted, part, batch_rows)
            return
        needed = list(dict.fromkeys([*self.target.key, *present]))
        part = MergeTarget(_selected(self.target.schema, needed), self.target.field_ids, self.target.key)
        for start in range(0, len(wanted), _INHERITED_ROWS):
            batches = self.keyed.batches(wanted[start : start + _INHERITED_ROWS], part, batch_rows)
            rows = pa.Table.from_batches(batches, schema=part.schema)
            values = self.inherit(rows.select(list(self.target.key)), lacking)
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
                    columns = [kept.column(field.name).cast(field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def addresses(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the row addresses of some rows, ascending as the rows."""
        assert self.keyed.addresses is not None  # noqa: S101 - read with addresses, see open_rows
        return self.keyed.addresses[wanted]


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """A MemTable or the tail of a WAL; see ``GenerationRows``."""

    source: GenerationSource
    table: pa.Table
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read some rows."""
        if not len(wanted):
            return
        everything = len(wanted) == self.table.num_rows
        rows = self.table if everything else self.table.take(pa.array(wanted))
        for batch in rows.to_batches(max_chunksize=request.batch_rows):
            if request.filter_sql is not None:
                yield from filtered(batch, request.filter_sql, request.columns)
            elif batch.num_rows:
                yield batch.select(list(request.columns))


def read_flushed(source: GenerationSource, dataset: lance.LanceDataset, target: MergeTarget) -> KeyedGeneration:
    """Read the keys of a flushed MemTable.

    Args:
        source: The generation.
        dataset: Its dataset.
        target: The base table's side.

    Raises:
        ObjectNotFoundError: A file of it vanished.
        UnavailableError: Storage failed.
        CorruptionError: It contradicts the base table.
        InvalidRequestError: Its rows are of another schema than the table's.
    """
    mapping_of(dataset, target)
    return read_keys(source.generation, source.path, dataset, target, None, with_addresses=True)


def unflushed_rows(source: GenerationSource, target: MergeTarget) -> MemoryRows:
    """Return rows that are not flushed as rows of the base table.

    Raises:
        InvalidRequestError: They are of another schema than the table's.
    """
    assert source.rows is not None  # noqa: S101 - what is not flushed has its rows with it
    check_unflushed_schema(source, target.schema)
    deleted = source.rows.column(TOMBSTONE_COLUMN).to_numpy().astype(bool)
    rows = source.rows.select(target.schema.names)
    table = pa.Table.from_arrays(rows.columns, schema=_nullable_but_key(target))
    return MemoryRows(source, table, rows.select(list(target.key)), deleted)


def mapping_of(dataset: lance.LanceDataset, target: MergeTarget) -> ColumnMapping:
    """Return how a flushed MemTable's columns become those of the table.

    Raises:
        InvalidRequestError: They cannot: the table's schema has changed too much since the flush.
    """
    with translated("read the schema of a flushed MemTable", dataset.uri):
        mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch):
        raise InvalidRequestError(
            "a flushed MemTable cannot be read as rows of the table",
            remedy="undo the change of schema, or read an older version; `memwal doctor` says what to do",
            uri=dataset.uri,
            reason=mapping.reason,
        )
    return mapping


def is_among(values: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Tell which values occur in an ascending array."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: npt.NDArray[np.bool_] = ascending[places] == values
    return found


def _selected(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def _nullable_but_key(target: MergeTarget) -> pa.Schema:
    return pa.schema([f if f.name in target.key else f.with_nullable(True) for f in target.schema])
