"""An ingestion whose rows are read and written by executors."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.ingest.ingestion import BatchRequest
from memwal_core.ingest.report import IngestReport
from memwal_core.ingest.source import Source
from memwal_core.jobs.context import JobContext
from memwal_core.spark.ingest.frame import FrameBatch, FrameCheck, ingest_frame
from memwal_core.spark.ingest.inputs import read_source
from memwal_core.spark.job_session import session_for


def ingest_on_executors(
    context: JobContext, source: Source, request: BatchRequest, suites: Sequence[str]
) -> IngestReport:
    """Read a source with Spark and ingest it; ``ingest_frame`` lists the errors."""
    base = context.base
    check = _check_by(suites)
    with session_for(context, "ingest") as spark:
        frame = read_source(spark, source, base.state().schema, (request.order_by, request.delete_column))
        batch = FrameBatch(**{name: getattr(request, name) for name in BatchRequest.__slots__}, check=check)
        return ingest_frame(frame, base, batch)


def _check_by(suites: Sequence[str]) -> FrameCheck | None:
    if not suites:
        return None
    from memwal_core.quality.input_suite import frame_check  # noqa: PLC0415 - Great Expectations takes seconds

    return frame_check(suites)
