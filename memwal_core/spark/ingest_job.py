"""The ingestion as a job: rows of files or tables into regions, once per batch id."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from memwal_core.errors import InternalError, InvalidRequestError, UnavailableError
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.ingest.frame import FrameBatch, FrameCheck, ingest_frame
from memwal_core.spark.ingest.inputs import Source, batch_of_files, read_source
from memwal_core.spark.jvm_log import keep_log
from memwal_core.spark.session import LateSession

_log = logging.getLogger(__name__)


class IngestJob(Job[IngestRequest, IngestReport]):
    """Executors check all rows, then each region is written by one task; the driver sees counts only."""

    def run(self, context: JobContext, request: IngestRequest) -> IngestReport:
        """Read the source and ingest it; without a Spark session if the batch was written before."""
        base = context.base
        source = Source(request.sources, request.format, request.options, base.storage_options)
        batch = BatchId(request.stream, request.batch or batch_of_files(source))
        done = BatchRecords(base.store, base.clock).done(batch)
        check = _check_by(request.suites)
        if done is not None:
            return IngestReport.of_done(base.uri, done)
        with session_for(context, "ingest") as spark:
            frame = read_source(
                spark, source, base.state().schema, (request.order_by or None, request.delete_column or None)
            )
            rows = FrameBatch(
                batch=batch,
                source=str(source),
                spec_id=request.spec,
                takeover=request.takeover,
                order_by=request.order_by or None,
                delete_column=request.delete_column or None,
                check=check,
                dry_run=request.dry_run,
                progress=lambda done, total: context.progress("regions", done, total),
            )
            return ingest_frame(frame, base, rows)

    def divide(self, context: JobContext, request: IngestRequest) -> Division:
        """Look whether the batch is written already; nothing else is read, so a dry run is a piece, too."""
        context.base.require_writable()
        batch = BatchId(request.stream, request.batch)
        done = BatchRecords(context.base.store, context.clock).done(batch)
        if done is not None:
            return Division(IngestReport.of_done(context.opened.uri, done), ())
        written = BatchRecords(context.base.store, context.clock).count_shares(batch)
        reason = f"begun before, {written} regions are written" if written else "not begun"
        uri, source = context.opened.uri, ", ".join(request.sources)
        report = IngestReport(uri, batch, JobOutcome.PLANNED, reason, source, 0, (), 0.0)
        return Division(report, (Piece(f"batch {batch}", request),))

    def verify(
        self,
        context: JobContext,
        pieces: Sequence[Piece],
        results: Sequence[Mapping[str, object]],  # noqa: ARG002 - the record of the batch says it
    ) -> Proof:
        """Read the record of the batch anew.

        Raises:
            InternalError: The job left no record.
        """
        (piece,) = pieces
        assert isinstance(piece.request, IngestRequest)  # noqa: S101 - made by ``divide``
        batch = BatchId(piece.request.stream, piece.request.batch)
        done = BatchRecords(context.base.store, context.clock).done(batch)
        if done is None:
            raise InternalError(
                "the job left no record of the batch", remedy="read the log of the job", batch=str(batch)
            )
        rows = done.rows or 0
        return Proof(
            f"batch {batch} is written: {rows:,} rows in {done.regions} regions",
            {"stream": batch.stream, "batch": batch.batch, "rows": rows, "regions": done.regions},
        )


@contextmanager
def session_for(context: JobContext, job: str) -> Iterator[SparkSession]:
    """Give a job the session of its application, or one of its own.

    Raises:
        UnavailableError: Spark could not be started.
    """
    shared = context.executors.session if isinstance(context.executors, SparkExecutors) else None
    session = shared or LateSession(f"memwal {job} {context.opened.uri}")
    try:
        spark = session()
    except PySparkException as error:
        raise UnavailableError(
            "Spark could not be started",
            remedy="set JAVA_HOME to a Java that Spark supports",
            cause=str(error),
            log=keep_log() or "where Spark was started",
        ) from error
    try:
        yield spark
    except Exception as error:
        if not isinstance(error, InvalidRequestError) and (log := keep_log()):
            _log.warning("the messages of Spark are in %s", log)
        raise
    finally:
        if shared is None:
            session.stop()


def _check_by(suites: Sequence[str]) -> FrameCheck | None:
    if not suites:
        return None
    from memwal_core.quality.input_suite import frame_check  # noqa: PLC0415 - Great Expectations takes seconds

    return frame_check(suites)
