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


def require_repetition(records: BatchRecords, batch: BatchId, table: str) -> None:
    """Return if a batch that is written already may be a repetition: of a query, only the newest batch is repeated.

    Raises:
        InvalidRequestError: A later batch has begun. The query was set back, and its rows may be other ones.
    """
    if records.is_followed(batch):
        raise InvalidRequestError(
            "the checkpoint of this query is older than what the query has written: this batch is written, and a later "
            "one has begun",
            remedy="go on with the newest checkpoint; if it is lost, or rows shall be read again, start the query with "
            "an empty one, whose batches count anew: rows of known keys are replaced",
            table=table,
            query=batch.stream,
            batch=batch.number,
        )
