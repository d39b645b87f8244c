"""One flushed MemTable, keys first: what it writes and deletes, and its rows on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.base_table.reading.read_sizes import PREFETCH_BYTES
from memwal_core.errors import CorruptionError
from memwal_core.flushed.read.columns import ColumnMapping, MergeTarget, SchemaMismatch, map_columns
from memwal_core.flushed.read.opening import store_of
from memwal_core.flushed.read.own_keys import OwnKeys
from memwal_core.flushed.read.row_filter import kept_rows
from memwal_core.format.columns import ROW_ADDRESS, TOMBSTONE_COLUMN
from memwal_core.native.casting import cast
from memwal_core.storage import ObjectStore
from memwal_core.storage.concurrent import run_two

_SPARSE = 16
"""Below one winner in this many rows, taking rows by number is faster than scanning all of them."""

_NUMBER = "__row"

_SMALL_ROWS = 8192
"""Up to this many rows are read at once, more as a stream."""


@dataclass(frozen=True, slots=True)
class KeyedGeneration:
    """A generation with its keys in write order.

    Attributes:
        keys: The key columns, oldest row first; see ``numbered`` for tables without a primary key.
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
        """Return the keys of the rows whose flag is set."""
        return self.keys.filter(pa.array(mask))

    def batches(
        self, wanted: npt.NDArray[np.int64], target: MergeTarget, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows ``wanted`` (row numbers in write order, ascending) in the base schema; they come in scan order.

        Only a few batches are in memory. ``target`` has exactly the columns that the generation has.
        """
        if not len(wanted):
            return
        numbers = wanted if self.offsets is None else np.sort(self.offsets[wanted])
        columns = [self.mapping.sources[name] for name in target.schema.names]
        is_sparse = len(numbers) * _SPARSE < self.keys.num_rows
        read = self._taken(numbers, columns, batch_rows) if is_sparse else self._scanned(numbers, columns, batch_rows)
        for batch in read:
            yield self._as_base_rows(batch, target)

    def chosen(
        self, rows: pa.Table, wanted: npt.NDArray[np.int64], target: MergeTarget, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows ``wanted`` (ascending numbers) of what ``read_whole`` returned, in ``target``'s schema."""
        mask = np.zeros(rows.num_rows, dtype=bool)
        mask[wanted] = True
        columns = [self.mapping.sources[name] for name in target.schema.names]
        start = 0
        for batch in rows.select(columns).to_batches(max_chunksize=batch_rows):
            part = mask[start : start + batch.num_rows]
            start += batch.num_rows
            if part.any():
                yield self._as_base_rows(batch if part.all() else kept_rows(batch, part), target)

    def _as_base_rows(self, batch: pa.RecordBatch, target: MergeTarget) -> pa.RecordBatch:
        for field, column in zip(target.schema, batch.columns, strict=True):
            if not field.nullable and column.null_count:
                raise CorruptionError(
                    "a flushed MemTable has NULL in a column that the base table declares NOT NULL",
                    remedy="make the base table's column nullable",
                    uri=self.uri,
                    column=field.name,
                    rows=int(pc.sum(column.is_null()).as_py()),
                )
        found = zip(target.schema, batch.columns, strict=True)
        columns = [cast(self.mapping.reshape(field.name, column), field.type) for field, column in found]
        return pa.RecordBatch.from_arrays(columns, schema=target.schema)

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
        if batch_rows is None and len(mask) <= _SMALL_ROWS:
            # Lance reads a few batches faster at once than as a stream.
            with translated("read the rows of a flushed MemTable", self.uri):
                rows = self.dataset.to_table(columns=columns, scan_in_order=True).combine_chunks()
            for batch in rows.to_batches():
                yield batch if mask.all() else kept_rows(batch, mask)
            return
        # With a bound on rows, decode one batch at a time; without one, several, bounded by their bytes.
        readahead = None if batch_rows is None else 1
        start = 0
        with translated("read the rows of a flushed MemTable", self.uri):
            scanner = self.dataset.scanner(
                columns=columns,
                scan_in_order=True,
                batch_size=batch_rows,
                batch_readahead=readahead,
                fragment_readahead=readahead,
                io_buffer_size=PREFETCH_BYTES,
            )
            for batch in scanner.to_batches():
                part = mask[start : start + batch.num_rows]
                start += batch.num_rows
                if part.all():
                    yield batch
                elif part.any():
                    yield kept_rows(batch, part)


def read_keys(  # noqa: PLR0913  (a generation, and what is wanted of it)
    generation: int,
    uri: str,
    dataset: lance.LanceDataset,
    target: MergeTarget,
    missing: tuple[str, ...] | None = (),
    *,
    with_addresses: bool = False,
    within: ObjectStore | None = None,
) -> KeyedGeneration:
    """Read the keys and tombstone marks of a generation; ``within`` is as for ``open_generation``.

    ``missing`` are the base columns that the plan found it to lack; None accepts any. Another schema than the plan
    found, or a NULL key, is a ``CorruptionError``.
    """
    mapping = _require_mapping(uri, dataset, target, missing)
    place = _Place(generation, uri, dataset, mapping, within)
    keyed, _ = _read(place, target, (), with_addresses=with_addresses)
    return keyed


def read_whole(  # noqa: PLR0913  (as for read_keys)
    generation: int,
    uri: str,
    dataset: lance.LanceDataset,
    target: MergeTarget,
    columns: Sequence[str],
    missing: tuple[str, ...] | None = None,
    *,
    within: ObjectStore | None = None,
) -> tuple[KeyedGeneration, pa.Table | None]:
    """Read the keys and row addresses of a generation and, at once, some base columns of all its rows.

    For a small generation this takes little longer than reading the keys alone. The rows are None if it lacks one of
    the columns; pass them to ``KeyedGeneration.chosen``. ``missing`` and ``within`` are as for ``read_keys``.
    """
    mapping = _require_mapping(uri, dataset, target, missing)
    has_all = set(columns) <= mapping.sources.keys()
    further = tuple(mapping.sources[name] for name in columns) if has_all else ()
    keyed, rows = _read(_Place(generation, uri, dataset, mapping, within), target, further, with_addresses=True)
    return keyed, rows if has_all else None


@dataclass(frozen=True, slots=True)
class _Place:
    generation: int
    uri: str
    dataset: lance.LanceDataset
    mapping: ColumnMapping
    within: ObjectStore | None = None


def _require_mapping(
    uri: str, dataset: lance.LanceDataset, target: MergeTarget, missing: tuple[str, ...] | None
) -> ColumnMapping:
    mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch) or (missing is not None and mapping.missing != missing):
        raise CorruptionError(
            "a flushed MemTable changed its schema after the plan was made",
            remedy="merge again: the new plan maps it as it is, or parks the region with a reason",
            uri=uri,
            reason=mapping.reason if isinstance(mapping, SchemaMismatch) else f"it lacks {list(mapping.missing)}",
        )
    return mapping


def _read(
    place: _Place, target: MergeTarget, further: tuple[str, ...], *, with_addresses: bool
) -> tuple[KeyedGeneration, pa.Table]:
    mapping, uri = place.mapping, place.uri
    columns = [mapping.sources[name] for name in target.key]
    marks = [TOMBSTONE_COLUMN] if mapping.has_tombstones else []
    wanted = list(dict.fromkeys([*columns, *marks, *further]))
    read = partial(place.dataset.to_table, columns=wanted, with_row_address=True)
    with translated("read the keys of a flushed MemTable", uri):
        if target.key:
            store, _ = store_of(uri, place.dataset.latest_storage_options() or {}, place.within)
            rows, own = run_two(store.kind, read, partial(OwnKeys.of, uri, place.dataset, place.within))
        else:
            rows, own = read(), None
    addresses = rows.column(ROW_ADDRESS).to_numpy()
    offsets: npt.NDArray[np.int64] | None = None
    if not bool(np.all(addresses[1:] >= addresses[:-1])):
        offsets = np.argsort(addresses, kind="stable").astype(np.int64, copy=False)
        rows = rows.take(pa.array(offsets))
        addresses = addresses[offsets]
    deleted = np.zeros(rows.num_rows, dtype=bool)
    if mapping.has_tombstones:
        deleted = rows.column(TOMBSTONE_COLUMN).fill_null(False).to_numpy()
    if not target.key and deleted.any():
        raise CorruptionError(
            "a flushed MemTable deletes rows of a table without a primary key",
            remedy="run `memwal doctor`; nothing tells which rows are meant",
            uri=uri,
        )
    keys = _as_keys(rows.select(columns), target, uri) if target.key else numbered(rows.num_rows)
    if own is not None:
        own.require(keys)
    kept = addresses if with_addresses else None
    keyed = KeyedGeneration(place.generation, uri, place.dataset, mapping, keys, deleted, offsets, kept)
    return keyed, rows


def numbered(rows: int) -> pa.Table:
    """Return what stands for the keys of rows without a primary key: as many rows, and no column of the table."""
    return pa.table({_NUMBER: np.arange(rows, dtype=np.int64)})


def _as_keys(rows: pa.Table, target: MergeTarget, uri: str) -> pa.Table:
    for column in rows.columns:
        if column.null_count:
            raise CorruptionError("a flushed MemTable has a row with a NULL key", remedy="run `memwal doctor`", uri=uri)
    return rows.rename_columns(list(target.key)).cast(pa.schema([target.schema.field(name) for name in target.key]))
