"""Writing the winners of some regions as fragments that no version names yet.

Memory: the keys of two regions' generations, since the next region is read while one is written, the distinct keys of
the unit, and a few batches of rows. Rows are never held as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.base_table.commit.row_changes import rows_of_keys, write_rows
from memwal_core.base_table.keys.copies import require_single
from memwal_core.base_table.keys.search import KeySearch, positions
from memwal_core.deduplicate import deduplicate
from memwal_core.errors import MemwalError
from memwal_core.flushed.read import KeyedGeneration, MergeTarget
from memwal_core.jobs.merge.read.winners import RegionTask, Take, keyed_generations
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.merge.work.units import KeyPart, WriteUnit, WrittenUnit
from memwal_core.storage.concurrent import prefetched, read_ahead

_ROW_BYTES = 256
"""Of a generation whose size is unknown."""

KeepKeys = Callable[[pa.Table, Sequence[str]], KeyPart]
"""Keeps the keys of a unit for the search; also told the descriptions of the fragments written."""


def keep_in_memory(keys: pa.Table, documents: Sequence[str]) -> KeyPart:  # noqa: ARG001 - the protocol
    """Keep the keys where they are."""
    return KeyPart(None, keys, keys.num_rows, keys.nbytes)


def write_unit(unit: WriteUnit, table: TableReader, keep: KeepKeys, take: Take) -> WrittenUnit:
    """Write the newest row of each key of some regions, and remember which keys they touch.

    Args:
        unit: The regions.
        table: The base table.
        keep: Keeps the keys.
        take: Opens generations.

    Raises:
        UnavailableError: Storage failed; files that nothing names may be left.
        ObjectNotFoundError: A generation or the base version vanished. Plan anew.
        CorruptionError: A generation contradicts its table.
        MemwalError: Whatever else kept the rows from being read or written.
    """
    dataset = table.dataset(unit.version)
    rows = _UnitRows(unit, dataset, take, table.settings.storage.concurrency)
    batches = prefetched(rows.batches())
    try:
        first = next(batches, None)
        documents: tuple[str, ...] = ()
        if first is not None:
            schema = unit.tasks[0].target.schema
            documents = write_rows(dataset, pa.RecordBatchReader.from_batches(schema, chain([first], batches)))
    except MemwalError as error:
        # An error of ours inside the reader comes back as one of pylance's.
        if rows.error is not None and rows.error is not error:
            raise rows.error from error
        raise
    keys = pa.concat_tables(rows.keys).combine_chunks()
    return WrittenUnit(unit.number, unit.version, tuple(rows.shares), documents, keep(keys, documents))


_Wanted = tuple[KeyedGeneration, npt.NDArray[np.int64]]
"""A generation, and the numbers of its rows that win."""


class _UnitRows:
    """The winners of a unit, region by region, read as they are asked for."""

    def __init__(self, unit: WriteUnit, dataset: lance.LanceDataset, take: Take, concurrency: int) -> None:
        self._unit = unit
        self._dataset = dataset
        self._take = take
        self._concurrency = concurrency
        self.keys: list[pa.Table] = []
        self.shares: list[MergeShare] = []
        self.error: MemwalError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        regions = map(self._region, self._unit.tasks)
        try:
            for rows in regions if len(self._unit.tasks) == 1 else prefetched(regions):
                yield from rows
        except MemwalError as error:
            self.error = error
            raise

    def _region(self, task: RegionTask) -> Iterator[pa.RecordBatch]:
        """Read and de-duplicate the keys of a region; its rows are read as they are asked for."""
        generations = keyed_generations(task, self._take, self._concurrency)
        newest = deduplicate(generations, task.target.key)
        touched = newest.keys_of(newest.last).combine_chunks()
        live = newest.live
        self.keys.append(touched)
        self.shares.append(
            MergeShare(
                region_id=task.region_id,
                merged=task.merged,
                through=task.generations[-1][0],
                rows_read=newest.keys.num_rows,
                upserts=len(live),
                tombstones=touched.num_rows - len(live),
            )
        )
        return self._rows(task, list(zip(generations, newest.by_source(live), strict=True)), touched)

    def _rows(self, task: RegionTask, wanted: list[_Wanted], touched: pa.Table) -> Iterator[pa.RecordBatch]:
        """Read rows by generation: small ones ahead, as many as fit into a batch; a large one as a stream."""
        at_once = self._unit.batch_bytes

        def row_bytes(generation: KeyedGeneration) -> int:
            return max(1, task.row_bytes.get(generation.generation, _ROW_BYTES))

        def read(each: _Wanted) -> Iterable[pa.RecordBatch]:
            generation, numbers = each
            batch_rows = max(1, at_once // row_bytes(generation))
            batches = generation.batches(numbers, task.rows, batch_rows)
            return list(batches) if len(numbers) <= batch_rows else batches

        complete = self._completion(task, touched)
        sizes = [(each, len(each[1]) * row_bytes(each[0])) for each in wanted]
        for batches in read_ahead(read, sizes, self._concurrency, at_once):
            yield from map(complete, batches)

    def _completion(self, task: RegionTask, touched: pa.Table) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        if not task.missing:
            return _as_it_is
        return _Backfilled(self._dataset, touched, task).complete if task.target.key else partial(_padded, task.target)


def _padded(target: MergeTarget, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the lacking columns to rows of a table without a primary key: NULL, as in older rows of the base table."""
    known = set(batch.schema.names)
    columns = [
        batch.column(field.name) if field.name in known else pa.nulls(batch.num_rows, field.type)
        for field in target.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target.schema)


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class _Backfilled:
    """Base values for columns that a generation lacks (decision 0012); NULL for keys the base lacks."""

    def __init__(self, dataset: lance.LanceDataset, keys: pa.Table, task: RegionTask) -> None:
        self._target: MergeTarget = task.target
        self._values = rows_of_keys(dataset, KeySearch(keys, task.target.key), task.target.key, task.missing)
        require_single(dataset, self._values, task.target.key)

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the lacking columns to rows."""
        places = positions(pa.Table.from_batches([batch]), self._values, self._target.key)
        columns = [
            batch.column(field.name)
            if field.name in batch.schema.names
            else self._values.column(field.name).take(places).combine_chunks()
            for field in self._target.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._target.schema)
