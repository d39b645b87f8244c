"""One flushed MemTable, keys first: what it writes and deletes, and its rows on demand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError
from memwal_core.generations.columns import ColumnMapping, MergeTarget, SchemaMismatch, map_columns
from memwal_core.generations.row_filter import kept_rows
from memwal_core.memtable.schema import TOMBSTONE_COLUMN

_SPARSE = 16
"""Below one winner in this many rows, fetching rows one by one beats scanning all of them."""

_READ_AHEAD_BYTES = 64 * 1024 * 1024
"""What Lance may read ahead of a bounded scan; its own default is 2 GiB."""


@dataclass(frozen=True, slots=True)
class KeyedGeneration:
    """A generation with its keys in write order.

    Attributes:
        generation: Its number.
        uri: Where it is.
        dataset: Opened.
        mapping: How to read its columns.
        keys: The key columns, oldest row first.
        deleted: For each of them, whether it deletes its key.
        offsets: Row number in write order -> row number in scan order; None if they are equal.
        addresses: Row address of each row in write order; None unless asked for.
    """

    generation: int
    uri: str
    dataset: lance.LanceDataset
    mapping: ColumnMapping
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64] | None
    addresses: npt.NDArray[np.uint64] | None = None

    def select(self, mask: npt.NDArray[np.bool_]) -> pa.Table:
        """Return the keys of some rows."""
        return self.keys.filter(pa.array(mask))

    def batches(
        self, wanted: npt.NDArray[np.int64], target: MergeTarget, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read some rows in the base schema, without holding more than a few batches.

        Args:
            wanted: Row numbers in write order, ascending.
            target: Exactly the columns that the generation has.
            batch_rows: Upper bound of rows per batch; Lance's default if None.

        Raises:
            UnavailableError: Storage failed.
            CorruptionError: A row does not fit the base schema.
        """
        if not len(wanted):
            return
        numbers = wanted if self.offsets is None else np.sort(self.offsets[wanted])
        columns = [self.mapping.sources[name] for name in target.schema.names]
        is_sparse = len(numbers) * _SPARSE < self.keys.num_rows
        read = self._taken(numbers, columns, batch_rows) if is_sparse else self._scanned(numbers, columns, batch_rows)
        for batch in read:
            yield _as_base_rows(batch, target, self.uri)

    def _taken(
        self, numbers: npt.NDArray[np.int64], columns: list[str], batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        step = batch_rows or len(numbers)
        for start in range(0, len(numbers), step):
            with translated("read rows of a flushed MemTable", self.uri):
                rows = self.dataset.take(numbers[start : start + step].tolist(), columns=columns)
            yield from rows.to_batches()

    def _scanned(
        self, numbers: npt.NDArray[np.int64], columns: list[str], batch_rows: int | None
    ) -> Iterator[pa.RecordBatch]:
        mask = np.zeros(self.keys.num_rows, dtype=bool)
        mask[numbers] = True
        # Unbounded, Lance reads ahead as it likes, which is faster and holds many batches.
        readahead = None if batch_rows is None else 1
        start = 0
        with translated("read the rows of a flushed MemTable", self.uri):
            scanner = self.dataset.scanner(
                columns=columns,
                scan_in_order=True,
                batch_size=batch_rows,
                batch_readahead=readahead,
                fragment_readahead=readahead,
                io_buffer_size=None if batch_rows is None else _READ_AHEAD_BYTES,
            )
            for batch in scanner.to_batches():
                part = mask[start : start + batch.num_rows]
                start += batch.num_rows
                if part.all():
                    yield batch
                elif part.any():
                    yield kept_rows(batch, part)


def read_keys(
    generation: int,
    uri: str,
    dataset: lance.LanceDataset,
    target: MergeTarget,
    missing: tuple[str, ...] | None = (),
    *,
    with_addresses: bool = False,
) -> KeyedGeneration:
    """Read the keys and tombstone marks of a generation.

    Args:
        generation: Its number.
        uri: Where it is.
        dataset: Opened.
        target: The base table's side.
        missing: Base columns that the plan found it to lack; None accepts whatever it lacks.
        with_addresses: Keep the row addresses.

    Raises:
        CorruptionError: Its schema is not what the plan found, or a key is NULL.
        UnavailableError: Storage failed.
    """
    mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch) or (missing is not None and mapping.missing != missing):
        raise CorruptionError(
            "a flushed MemTable changed its schema after the plan was made",
            remedy="merge again; the plan then takes it as it is, or parks the region with a reason",
            uri=uri,
            reason=mapping.reason if isinstance(mapping, SchemaMismatch) else f"it lacks {list(mapping.missing)}",
        )
    columns = [mapping.sources[name] for name in target.key]
    wanted = [*columns, TOMBSTONE_COLUMN] if mapping.has_tombstones else columns
    with translated("read the keys of a flushed MemTable", uri):
        rows = dataset.to_table(columns=wanted, with_row_address=True)
    addresses = rows.column("_rowaddr").to_numpy()
    offsets: npt.NDArray[np.int64] | None = None
    if not bool(np.all(addresses[1:] >= addresses[:-1])):
        offsets = np.argsort(addresses, kind="stable").astype(np.int64, copy=False)
        rows = rows.take(pa.array(offsets))
        addresses = addresses[offsets]
    deleted = np.zeros(rows.num_rows, dtype=bool)
    if mapping.has_tombstones:
        deleted = rows.column(TOMBSTONE_COLUMN).fill_null(False).to_numpy()
    keys = _as_keys(rows.select(columns), target, uri)
    kept = addresses if with_addresses else None
    return KeyedGeneration(generation, uri, dataset, mapping, keys, deleted, offsets, kept)


def _as_keys(rows: pa.Table, target: MergeTarget, uri: str) -> pa.Table:
    for column in rows.columns:
        if column.null_count:
            raise CorruptionError("a flushed MemTable holds a row without a key", remedy="run `memwal doctor`", uri=uri)
    return rows.rename_columns(list(target.key)).cast(pa.schema([target.schema.field(name) for name in target.key]))


def _as_base_rows(batch: pa.RecordBatch, target: MergeTarget, uri: str) -> pa.RecordBatch:
    for field, column in zip(target.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise CorruptionError(
                "a flushed MemTable holds NULL in a column that the base table declares NOT NULL",
                remedy="make the base table's column nullable, or correct the writer",
                uri=uri,
                column=field.name,
                rows=int(pc.sum(column.is_null()).as_py()),
            )
    columns = [column.cast(field.type) for field, column in zip(target.schema, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target.schema)
