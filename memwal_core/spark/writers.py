"""The writing half of the data source: batch writes and a streaming sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from memwal_core.base_table import BaseTable
from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.ids import IdSource
from memwal_core.ingest import BatchId, BatchRecords, RowIntake
from memwal_core.spark.commit import BatchCommit, directory_of, refuse_problems
from memwal_core.spark.options import WriteOptions
from memwal_core.spark.reach import require_reachable
from memwal_core.spark.staging import StagedMessage, Stager
from memwal_core.storage.layout import UNNAMED_STREAM, staged_intent_path

_QUERY_ID = "sql.streaming.queryId"
_BATCH_NUMBER = "streaming.sql.batchId"
"""What Spark tells the tasks of a streaming query. The id of a query is kept in its checkpoint."""


def plan_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> RowIntake:
    """Check before any work that rows can be written.

    Raises:
        InvalidRequestError: The table would have to be overwritten, or the columns do not fit it.
        ObjectNotFoundError: There is no table at the address.
    """
    if overwrite:
        raise InvalidRequestError(
            "rows cannot be replaced as a whole: regions take upserts and deletes",
            remedy='use mode "append", or output mode "append" in a streaming query; rows replace those of equal key',
            table=options.uri,
        )
    table = _open(options)
    require_reachable(table)
    intake = RowIntake.of(table, options.spec_id, options.delete_column)
    intake.check_schema(to_arrow_schema(schema, timezone="UTC"))
    return intake


class MemWalWriter(DataSourceArrowWriter):
    """Writes one DataFrame as one batch.

    Args:
        options: How to write.
        intake: Checks rows.
    """

    def __init__(self, options: WriteOptions, intake: RowIntake) -> None:
        """Name the batch."""
        self._options = options
        self._intake = intake
        if options.stream is not None and options.batch is not None:
            self._batch = BatchId(options.stream, options.batch)
        else:
            self._batch = BatchId(UNNAMED_STREAM, IdSource().commit_id().hex())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task; errors as for ``Stager.run``."""
        return _staged(self._options, self._intake, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the rows of all tasks; errors as for ``BatchCommit.run`` and ``refuse_problems``."""
        _commit(self._options, self._batch, _known(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks staged, unless the batch is begun."""
        _discard(self._options, self._batch, _known(messages))


class MemWalStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each exactly once, whatever is repeated.

    Args:
        options: How to write.
        intake: Checks rows.
    """

    def __init__(self, options: WriteOptions, intake: RowIntake) -> None:
        """Keep the parts.

        Raises:
            InvalidRequestError: The options name a batch.
        """
        if options.stream is not None:
            raise InvalidRequestError(
                "batches of a streaming query have the names that Spark gives them",
                remedy="leave out the options `stream` and `batch`",
                stream=options.stream,
                batch=options.batch,
            )
        self._options = options
        self._intake = intake

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task; errors as for ``Stager.run``.

        Raises:
            InternalError: Spark did not tell which query and batch it is.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        number = context.getLocalProperty(_BATCH_NUMBER) if context is not None else None
        if query is None or number is None:
            raise InternalError(
                "Spark did not tell which batch of which query this is, so it cannot be written exactly once",
                remedy="report this with the version of Spark",
                query=query,
                batch=number,
            )
        message = _staged(self._options, self._intake, BatchId.numbered(query, int(number)), iterator)
        message.stream = query
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Write the rows of all tasks; errors as for ``BatchCommit.run`` and ``refuse_problems``."""
        known = _known(messages)
        for batch in _named(known, batchId):
            _commit(self._options, batch, known)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what the tasks staged, unless the batch is begun."""
        known = _known(messages)
        for batch in _named(known, batchId):
            _discard(self._options, batch, known)


def _named(messages: Sequence[StagedMessage], number: int) -> list[BatchId]:
    """Return the batch of some messages; none without a message, and then there are no rows either."""
    return [BatchId.numbered(stream, number) for stream in {each.stream for each in messages if each.stream}]


def _staged(
    options: WriteOptions, intake: RowIntake, batch: BatchId, iterator: Iterator[pa.RecordBatch]
) -> StagedMessage:
    table = _open(options)
    if BatchRecords(table.store, table.clock).done(batch) is not None:
        for _ in iterator:  # Nothing of a batch that is written needs to be kept.
            pass
        return StagedMessage(None, ())
    stager = Stager(table, intake, directory_of(batch))
    problem = stager.run(iterator)
    return StagedMessage(None, stager.staged, problem)


def _commit(options: WriteOptions, batch: BatchId, messages: Sequence[StagedMessage]) -> None:
    try:
        refuse_problems(messages, str(batch))
    except InvalidRequestError:
        _discard(options, batch, messages)
        raise
    staged = [piece for message in messages for piece in message.staged]
    BatchCommit(_open(options), batch, options).run(staged)


def _discard(options: WriteOptions, batch: BatchId, messages: Sequence[StagedMessage]) -> None:
    """Remove staged rows. Those of a batch that is begun stay: the next attempt finishes it with them."""
    store = _open(options).store
    if store.head(staged_intent_path(directory_of(batch))) is None:
        for path in {piece.path for message in messages for piece in message.staged}:
            store.delete(path)


def _known(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]


def _open(options: WriteOptions) -> BaseTable:
    return BaseTable.open(options.uri, storage_options=options.storage)
