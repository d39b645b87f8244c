"""Writing the staged rows of a batch to their regions, exactly once, in one process.

The first attempt that gets here records which staged rows are those of the batch; every later attempt
writes these and forgets its own. So a batch is finished with the rows it was begun with, even if its
query returns other rows when Spark repeats it. Rows stream from the files through the region writers;
only the keys of a few regions and a few batches are in memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple

import numpy as np
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.deduplicate import last_row_per_key
from memwal_core.errors import InvalidRequestError, MemwalError, ObjectExistsError, ObjectNotFoundError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.paths import staged_batch_directory, staged_intent_path, staged_stream_directory
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import BatchId, RegionRows, keys_digest
from memwal_core.ingest.records import BatchDone, BatchRecords
from memwal_core.ingest.share import RegionShare, write_share
from memwal_core.native.casting import no_rows
from memwal_core.spark.options import WriteOptions
from memwal_core.spark.writing.query_batches import require_repetition
from memwal_core.spark.writing.staging import StagedMessage, StagedRows, staged_batches, staged_schema
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.writer import Takeover
from memwal_core.writer.admission.validate import conform
from memwal_core.writer.table_context import TableContext

_log = logging.getLogger(__name__)

_REGIONS_AT_ONCE = 4
SOURCE = "spark"
"""The source of these batches in their records."""


def directory_of(batch: BatchId) -> str:
    """Return the staging directory of a batch, relative to the table."""
    return staged_batch_directory(batch.stream, batch.batch, batch.number)


def refuse_problems(messages: Iterable[StagedMessage], batch: str) -> None:
    """Refuse the whole batch if a task found rows that cannot be written."""
    problems = [message.problem for message in messages if message.problem is not None]
    if problems:
        first = problems[0]
        raise InvalidRequestError(
            "rows do not fit the table; the whole batch was refused and nothing was written",
            remedy="correct the rows and write the batch again",
            batch=batch,
            problem=first.what,
            column=first.column,
            bad_rows=sum(problem.rows for problem in problems),
            sample_rows=list(first.samples),
        )


class BatchCommit:
    """Writes one batch."""

    def __init__(self, table: BaseTable, batch: BatchId, options: WriteOptions) -> None:
        self._table = table
        self._batch = batch
        self._options = options
        self._records = BatchRecords(table.store, table.clock)
        self._admission = RowAdmission.of(table, options.spec_id, options.delete_column)
        self._directory = directory_of(batch)

    def run(self, staged: Sequence[StagedRows], repeated: int = 0) -> BatchDone:
        """Write the rows, unless the batch is written; then remove what was staged. The last row of a key wins.

        After an error, a further run of the batch continues where this one stopped.

        Args:
            staged: The rows.
            repeated: Number of further rows, which tasks did not stage because the batch was written.

        Raises:
            ConflictError: A region seems to have another live writer, see option ``takeover``. Run the batch again.
            FencedError: Another writer took a region over. Decide who writes it, then run the batch again.
            InvalidRequestError: The table's schema has changed since the rows were staged, or an earlier attempt began
                the batch with other rows, which are gone or fit no more, or the checkpoint of the query was set back.
                Nothing was written.
            CorruptionError: A region contradicts itself; follow the runbook that the error names.
        """
        done = self._records.done(self._batch)
        if done is not None:
            _log.info("batch was already written [table=%s, batch=%s]", self._table.uri, self._batch)
            self._tidy()
            rows = repeated + sum(piece.rows for piece in staged)
            require_repetition(self._records, self._batch, self._table.uri, rows)
            return done
        by_region = _by_region(self._settle_intent(staged))
        counts = {value: _counted(pieces) for value, pieces in by_region.items()}
        self._records.begin(self._batch, counts, SOURCE)
        regions = self._regions(by_region)
        map_concurrently(
            lambda value: self._write(value, regions[value], by_region[value]), by_region, _REGIONS_AT_ONCE
        )
        done = self._records.finish(self._batch, SOURCE)
        _log.info("batch written [table=%s, batch=%s, rows=%s]", self._table.uri, self._batch, done.rows)
        self._tidy()
        return done

    def _settle_intent(self, staged: Sequence[StagedRows]) -> Sequence[StagedRows]:
        """Return the rows that count: those of the first attempt that got this far, while the table can take them."""
        misfit = self._misfit(staged)
        path = staged_intent_path(self._directory)
        if misfit is None:
            document = json.dumps([astuple(piece) for piece in staged]).encode()
            try:
                self._table.store.put_if_absent(path, document)
            except ObjectExistsError:
                pass
            else:
                return staged
        first = self._first(path)
        if first is not None and self._misfit(first) is None:
            return first
        if misfit is not None:
            raise misfit
        _log.warning(
            "staged rows of an earlier attempt are gone or fit no more, using those of this attempt [batch=%s]",
            self._batch,
        )
        return staged

    def _first(self, path: str) -> Sequence[StagedRows] | None:
        """Return the rows of the first attempt; None if there was none, or its rows are gone."""
        try:
            first = [StagedRows(*piece) for piece in json.loads(self._table.store.get(path))]
        except ObjectNotFoundError:
            return None
        present = all(self._table.store.head(name) is not None for name in {piece.path for piece in first})
        return first if present else None

    def _misfit(self, staged: Sequence[StagedRows]) -> InvalidRequestError | None:
        """Return why the table takes no rows of an attempt: its schema or division may have changed since."""
        if not staged:
            return None
        if staged[0].spec_id != self._admission.spec.spec_id:
            return InvalidRequestError(
                "the rows of the batch were divided by another region spec",
                remedy="write the batch again by the spec that is named in option `spec_id`",
                batch=str(self._batch),
                expected=self._admission.spec.spec_id,
                found=staged[0].spec_id,
            )
        try:
            schema = staged_schema(self._table, staged[0])  # All tasks of an attempt stage the same columns.
        except ObjectNotFoundError:
            return None  # Another attempt has finished the batch and removed them.
        columns = schema.remove(schema.get_field_index(TOMBSTONE_COLUMN))
        try:
            conform(no_rows(columns), self._admission.schema, self._admission.key)
        except InvalidRequestError as error:
            return error
        return None

    def _regions(self, by_region: Iterable[str]) -> Mapping[str, RegionId]:
        context = TableContext(self._table, self._admission.spec.spec_id)
        values = {text: self._admission.value_of(text) for text in by_region}
        found = context.load().directory.ensure_all(values.values())
        return {text: found[value] for text, value in values.items()}

    def _write(self, value: str, region_id: RegionId, pieces: Sequence[StagedRows]) -> None:
        share = RegionShare(
            self._batch, value, region_id, Takeover(self._options.takeover), self._table.ids.commit_id().hex()
        )
        write_share(self._table, share, self._newest(pieces))

    def _newest(self, pieces: Sequence[StagedRows]) -> Iterator[pa.Table]:
        """Yield the last row of each key; a share must not hold a key twice, unless the rows are adjacent."""
        key = self._admission.key
        keys = pa.Table.from_batches(staged_batches(self._table, pieces, key))
        wanted = np.zeros(keys.num_rows, dtype=bool)
        wanted[last_row_per_key(keys, key)] = True
        start = 0
        for batch in staged_batches(self._table, pieces):
            mask = wanted[start : start + batch.num_rows]
            start += batch.num_rows
            yield pa.Table.from_batches([batch if mask.all() else batch.filter(pa.array(mask))])

    def _tidy(self) -> None:
        """Remove what was staged for the batch and for earlier ones of its stream; leftovers do no harm."""
        store, number = self._table.store, self._batch.number
        try:
            store.delete_directory(self._directory)
            if number is not None:
                stream = staged_stream_directory(self._batch.stream)
                older = [name for name in store.list_directories(stream) if name.isdecimal() and int(name) < number]
                for name in older:
                    store.delete_directory(f"{stream}/{name}")
        except MemwalError as error:
            _log.warning("staged rows of a finished batch could not be removed [batch=%s]: %s", self._batch, error)


def _by_region(staged: Iterable[StagedRows]) -> dict[str, list[StagedRows]]:
    found: dict[str, list[StagedRows]] = {}
    for piece in staged:
        found.setdefault(piece.value, []).append(piece)
    return found


def _counted(pieces: Sequence[StagedRows]) -> RegionRows:
    return RegionRows(sum(piece.rows for piece in pieces), keys_digest(sum(piece.keys for piece in pieces)))
