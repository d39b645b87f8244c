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
    read_whole,
)
from memwal_core.reader.in_memory import filtered
from memwal_core.reader.sources import GenerationSource

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

    def has(self, column: str) -> bool:
        """Tell whether the generation has a column of the table; what it lacks is inherited."""
        ...

    def is_held(self, request: RowRequest) -> bool:
        """Tell whether rows can be given without a read."""
        ...

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read some rows.

        Args:
            wanted: Row numbers in write order, ascending.
            request: What of them.
        """
        ...


class HeldRows:
    """Rows of a small flushed MemTable that were read together with its keys. Given away once.

    Args:
        columns: Which columns.
        rows: All rows in write order; None if none were read.
    """

    def __init__(self, columns: tuple[str, ...] = (), rows: pa.Table | None = None) -> None:
        """Hold the rows."""
        self._columns = columns
        self._rows = rows

    def has(self, columns: tuple[str, ...]) -> bool:
        """Tell whether they are there, for exactly these columns."""
        return self._rows is not None and self._columns == columns

    def taken(self, columns: tuple[str, ...]) -> pa.Table | None:
        """Return them, for exactly these columns, and hold them no more."""
        if not self.has(columns):
            return None
        rows, self._rows = self._rows, None
        return rows


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """A flushed MemTable; see ``GenerationRows``.

    Attributes:
        source: Where it is from.
        keyed: Its keys and how to read it.
        target: The base table's side.
        inherit: Gives the values of columns that it lacks.
        held: Rows that were read with the keys, for the columns of a request; given away once.
    """

    source: GenerationSource
    keyed: KeyedGeneration
    target: MergeTarget
    inherit: Inherit
    held: HeldRows

    @property
    def keys(self) -> pa.Table:
        """The key columns, in write order."""
        return self.keyed.keys

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """For each of them, whether it deletes its key."""
        return self.keyed.deleted

    def has(self, column: str) -> bool:
        """Tell whether the generation has a column of the table."""
        return column in self.keyed.mapping.sources

    def is_held(self, request: RowRequest) -> bool:
        """Tell whether rows can be given without a read."""
        return request.filter_sql is None and (
            self.held.has(request.columns) or set(request.columns) <= set(self.target.key)
        )

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
        held = self.held.taken(columns)
        if held is not None:
            part = MergeTarget(schema, self.target.field_ids, self.target.key)
            yield from self.keyed.chosen(held, wanted, part, batch_rows)
            return
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
    """A MemTable or the tail of a WAL; see ``GenerationRows``.

    Attributes:
        source: Where it is from.
        table: The columns that it has, as the base table calls them.
        keys: The key columns of it.
        deleted: For each row, whether it deletes its key.
        target: The base table's side.
        missing: Columns of the base table that it lacks.
        inherit: Gives their values.
    """

    source: GenerationSource
    table: pa.Table
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]
    target: MergeTarget
    missing: tuple[str, ...]
    inherit: Inherit

    def has(self, column: str) -> bool:
        """Tell whether the generation has a column of the table."""
        return column not in self.missing

    def is_held(self, request: RowRequest) -> bool:
        """Tell whether rows can be given without a read."""
        return request.filter_sql is None and not any(name in self.missing for name in request.columns)

    def read(self, wanted: npt.NDArray[np.int64], request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read some rows."""
        if not len(wanted):
            return
        everything = len(wanted) == self.table.num_rows
        rows = self.table if everything else self.table.take(pa.array(wanted))
        columns = request.columns if request.filter_sql is None else tuple(self.target.schema.names)
        for batch in self._completed(rows, columns).to_batches(max_chunksize=request.batch_rows):
            if request.filter_sql is not None:
                yield from filtered(batch, request.filter_sql, request.columns)
            elif batch.num_rows:
                yield batch.select(list(request.columns))

    def _completed(self, rows: pa.Table, columns: tuple[str, ...]) -> pa.Table:
        lacking = [name for name in columns if name in self.missing]
        if not lacking:
            return rows
        values = self.inherit(rows.select(list(self.target.key)), lacking)
        for field in values.schema:
            rows = rows.append_column(field.with_nullable(True), values.column(field.name))
        return rows.select(list(dict.fromkeys([*columns, *self.target.key])))


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


def read_flushed_whole(
    source: GenerationSource, dataset: lance.LanceDataset, target: MergeTarget, columns: tuple[str, ...]
) -> tuple[KeyedGeneration, HeldRows]:
    """Read the keys of a flushed MemTable and some columns of its rows at once; errors as for ``read_flushed``.

    Args:
        source: The generation.
        dataset: Its dataset.
        target: The base table's side.
        columns: What a scan of it will ask for.
    """
    mapping_of(dataset, target)
    keyed, rows = read_whole(source.generation, source.path, dataset, target, columns)
    return keyed, HeldRows(columns, rows)


def mapping_of(dataset: lance.LanceDataset, target: MergeTarget) -> ColumnMapping:
    """Return how a flushed MemTable's columns become those of the table.

    Raises:
        InvalidRequestError: They cannot: the table's schema has changed too much since the flush.
    """
    with translated("read the schema of a flushed MemTable", dataset.uri):
        mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch):
        error = unmappable(dataset.uri, mapping.reason)
        raise error
    return mapping


def unmappable(uri: str, reason: str) -> InvalidRequestError:
    """Return the error of a flushed MemTable that cannot be read as rows of the table."""
    return InvalidRequestError(
        "a flushed MemTable cannot be read as rows of the table",
        remedy="undo the change of schema, or read an older version; `memwal doctor` says what to do",
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
