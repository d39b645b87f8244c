"""Streaming queries whose batches are ingested on executors."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from memwal_core.base_table import BaseTable
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.spark.ingest.frame import FrameBatch, ingest_frame
from memwal_core.spark.writing.query_batches import require_repetition, running_batch


def into_regions(
    table: BaseTable, request: Callable[[BatchId], FrameBatch] = FrameBatch
) -> Callable[[DataFrame, int], None]:
    """Return what a query hands its batches to: ``frame.writeStream.foreachBatch(into_regions(table))``.

    Each batch of the checkpoint is written once, however often Spark repeats it. A checkpoint that begins anew begins
    a stream of its own.

    Args:
        table: The base table, which executors open by its address.
        request: How to ingest a batch, for example ``lambda batch: FrameBatch(batch, delete_column="gone")``.

    Returns:
        A function that raises what ``ingest_frame`` raises, ``InvalidRequestError`` also where the checkpoint was set
        back behind what is written, and ``InternalError`` outside of a query.
    """
    records = BatchRecords(table.store, table.clock)

    def write(rows: DataFrame, _number: int) -> None:
        batch = running_batch(rows.sparkSession.sparkContext.getLocalProperty)
        report = ingest_frame(rows, table, request(batch))
        if report.outcome is JobOutcome.NOTHING_TO_DO:
            require_repetition(records, batch, table.uri, rows.count())

    return write
