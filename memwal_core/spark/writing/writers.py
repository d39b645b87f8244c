"""The writing half of the data source: batch writes and a streaming sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import UNNAMED_STREAM, staged_intent_path
from memwal_core.ids import IdSource
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.spark.options import WriteOptions
from memwal_core.spark.reachable import require_reachable
from memwal_core.spark.writing.commit import BatchCommit, directory_of, refuse_problems
from memwal_core.spark.writing.query_batches import running_batch
from memwal_core.spark.writing.staging import StagedMessage, Stager


def plan_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> RowAdmission:
    """Check before any work that rows can be written; refuse to overwrite, and columns that do not fit."""
    if overwrite:
        raise InvalidRequestError(
            "the table cannot be overwritten: regions take upserts and deletes",
            remedy='use mode "append" (streaming: output mode "append"); rows replace those with the same key',
            table=options.uri,
        )
    table = _open(options)
    require_reachable(table)
    _require_thawed(table)
    admission = RowAdmission.of(table, options.spec_id, options.delete_column)
    admission.check_schema(to_arrow_schema(schema, timezone="UTC"))
    return admission


class MemWalWriter(DataSourceArrowWriter):
    """Writes one DataFrame as one batch."""

    def __init__(self, options: WriteOptions, admission: RowAdmission) -> None:
        self._options = options
        self._admission = admission
        if options.stream is not None and options.batch is not None:
            self._batch = BatchId(options.stream, options.batch)
        else:
            self._batch = BatchId(UNNAMED_STREAM, IdSource().commit_id().hex())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return _staged(self._options, self._admission, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the rows of all tasks; errors as for ``BatchCommit.run``."""
        _commit(self._options, self._batch, _known(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged, unless the batch is begun."""
        _discard(self._options, self._batch, _known(messages))


class MemWalStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each exactly once, whatever Spark repeats."""

    def __init__(self, options: WriteOptions, admission: RowAdmission) -> None:
        """Refuse options that name a batch: Spark names those of a query."""
        if options.stream is not None:
            raise InvalidRequestError(
                "Spark names the batches of a streaming query, so options cannot",
                remedy="leave out the options `stream` and `batch`",
                stream=options.stream,
                batch=options.batch,
            )
        self._options = options
        self._admission = admission

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task.

        ``InternalError``: Spark did not say which query and batch it is.
        """
        context = TaskContext.get()
        batch = running_batch(context.getLocalProperty if context is not None else _untold)
        message = _staged(self._options, self._admission, batch, iterator)
        message.stream = batch.stream
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Write the rows of all tasks; errors as for ``BatchCommit.run``."""
        known = _known(messages)
        for batch in _named(known, batchId):
            _commit(self._options, batch, known)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what the tasks staged, unless the batch is begun."""
        known = _known(messages)
        for batch in _named(known, batchId):
            _discard(self._options, batch, known)


def _untold(_name: str) -> None:
    """Outside of a task Spark tells nothing."""


def _named(messages: Sequence[StagedMessage], number: int) -> list[BatchId]:
    """Return the batch of some messages; none without a message, and then there are no rows either."""
    return [BatchId.numbered(stream, number) for stream in {each.stream for each in messages if each.stream}]


def _staged(
    options: WriteOptions, admission: RowAdmission, batch: BatchId, iterator: Iterator[pa.RecordBatch]
) -> StagedMessage:
    table = _open(options)
    if BatchRecords(table.store, table.clock).done(batch) is not None:
        return StagedMessage(None, (), repeated=sum(rows.num_rows for rows in iterator))
    stager = Stager(table, admission, directory_of(batch))
    problem = stager.run(iterator)
    return StagedMessage(None, stager.staged, problem)


def _commit(options: WriteOptions, batch: BatchId, messages: Sequence[StagedMessage]) -> None:
    try:
        refuse_problems(messages, str(batch))
    except InvalidRequestError:
        _discard(options, batch, messages)
        raise
    staged = [piece for message in messages for piece in message.staged]
    _require_thawed(_open(options))
    BatchCommit(_open(options), batch, options).run(staged, sum(message.repeated for message in messages))


def _require_thawed(table: BaseTable) -> None:
    """Refuse to write to a frozen table: Spark can repeat a batch later, and nothing of it is written yet."""
    FreezeStore(table.store, table.ids, clock=table.clock).require_thawed()


def _discard(options: WriteOptions, batch: BatchId, messages: Sequence[StagedMessage]) -> None:
    """Remove staged rows. Those of a begun batch stay: the next attempt finishes it with them."""
    store = _open(options).store
    if store.head(staged_intent_path(directory_of(batch))) is None:
        for path in {piece.path for message in messages for piece in message.staged}:
            store.delete(path)


def _known(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]


def _open(options: WriteOptions) -> BaseTable:
    return BaseTable.open(options.uri, storage_options=options.storage)
