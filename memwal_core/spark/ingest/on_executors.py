"""An ingestion whose rows are read and written by executors."""

from __future__ import annotations

from memwal_core.ingest.ingestion import BatchRequest
from memwal_core.ingest.report import IngestReport
from memwal_core.ingest.source import Source
from memwal_core.jobs.context import JobContext
from memwal_core.spark.ingest.frame import FrameBatch, FrameCheck, ingest_frame
from memwal_core.spark.ingest.inputs import read_source
from memwal_core.spark.job_session import session_for


def ingest_on_executors(
    context: JobContext, source: Source, request: BatchRequest, check: FrameCheck | None
) -> IngestReport:
    """Read a source with Spark and ingest it; ``ingest_frame`` lists the errors."""
    base = context.base
    with session_for(context, "ingest") as spark:
        frame = read_source(spark, source, base.state().schema, (request.order_by, request.delete_column))
        batch = FrameBatch(**{name: getattr(request, name) for name in BatchRequest.__slots__}, check=check)
        return ingest_frame(frame, base, batch)
