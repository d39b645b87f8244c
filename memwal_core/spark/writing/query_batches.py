"""The batches of streaming queries: their names, and what a checkpoint must not do to them."""

from __future__ import annotations

from collections.abc import Callable

from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords

_QUERY, _NUMBER = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of what a streaming query runs. The checkpoint keeps the id of its query."""


def running_batch(local_property: Callable[[str], str | None]) -> BatchId:
    """Return the batch of a streaming query that this is part of; ``InternalError`` if Spark does not tell it."""
    query, number = local_property(_QUERY), local_property(_NUMBER)
    if query is None or number is None:
        raise InternalError(
            "Spark did not pass the query and the number of this batch, so it cannot be written exactly once",
            remedy="call this from a streaming query of a classic session; if it was, report it with the version of "
            "Spark",
            query=query,
            batch=number,
        )
    return BatchId.numbered(query, int(number))


def require_repetition(records: BatchRecords, batch: BatchId, table: str, rows: int) -> None:
    """Return if a batch that is written already may be a repetition: of a query, only the newest batch is repeated.

    Args:
        records: Of the table.
        batch: Which is written.
        table: For the error.
        rows: That it has now. More than it began with are more than a repetition has; fewer may be, where what else
            the query reads has changed.

    Raises:
        InvalidRequestError: A later batch has begun, or it has rows that were not written. The query was set back, and
            its rows may be other ones.
    """
    done = records.done(batch)
    begun = done.rows_begun if done is not None else None
    is_followed = records.is_followed(batch)
    if is_followed or (batch.number is not None and begun is not None and rows > begun):
        raise InvalidRequestError(
            "the checkpoint of this query is older than what the query has written: this batch is written, and "
            f"{'a later one has begun' if is_followed else 'it had fewer rows'}",
            remedy="go on with the newest checkpoint; if it is lost, or rows shall be read again, start the query with "
            "an empty one, whose batches count anew: rows of known keys are replaced",
            table=table,
            query=batch.stream,
            batch=batch.number,
            rows_then=begun,
            rows_now=rows,
        )
