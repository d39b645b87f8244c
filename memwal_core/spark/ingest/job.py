"""The ingestion as a job: rows of files or tables into regions, once per batch id.

Importing this needs no Spark: a small batch is written in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType

from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.extras import extras_named
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.arrow_rows import ArrowRows
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import BatchRequest, ingest_rows
from memwal_core.ingest.read_files import LeftToSparkError, read_files
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport
from memwal_core.ingest.source import Source, batch_of_files, require_same_files
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine, Workplace
from memwal_core.text import show_bytes, show_count


class IngestJob(Job[IngestRequest, IngestReport]):
    """All rows are checked, then each region is written by one task: of Spark, or here if the batch is small."""

    def run(self, context: JobContext, request: IngestRequest) -> IngestReport:
        """Read the source and ingest it; not read if the batch was written before."""
        base = context.base
        given = request.sources, request.format, request.options, base.storage_options
        source = Source(*given, names_batch=not request.batch)
        batch = BatchId(request.stream, request.batch or batch_of_files(source))
        done = BatchRecords(base.store, base.clock).done(batch)
        if done is not None:
            return IngestReport.of_done(base.uri, done)
        asked = BatchRequest(
            batch=batch,
            source=str(source),
            spec_id=request.spec,
            takeover=request.takeover,
            order_by=request.order_by or None,
            delete_column=request.delete_column or None,
            dry_run=request.dry_run,
            progress=lambda done, total: context.progress("regions", done, total),
            confirm=lambda: require_same_files(source, batch.batch) if source.names_batch else None,
        )
        try:
            return _in_this_process(context, source, asked, request)
        except LeftToSparkError as left:
            place = Workplace(on_executors=True, reason=str(left))
            if request.engine is Engine.LOCAL:
                raise InvalidRequestError(
                    "this process cannot write the batch by itself",
                    remedy="ask for the engine auto or spark, or raise ingest.in_process_bytes if that is the bound",
                    source=str(source),
                    reason=place.reason,
                ) from None
        with extras_named():
            from memwal_core.spark.ingest.on_executors import ingest_on_executors  # noqa: PLC0415 - an extra, and slow to import
        check = _input_suites().frame_check(request.suites) if request.suites else None
        return replace(ingest_on_executors(context, source, asked, check), place=place)

    def divide(self, context: JobContext, request: IngestRequest) -> Division:
        """Look whether the batch is written already; nothing else is read, so a dry run is a piece, too."""
        context.base.require_writable()
        batch = BatchId(request.stream, request.batch)
        done = BatchRecords(context.base.store, context.clock).done(batch)
        if done is not None:
            return Division(IngestReport.of_done(context.opened.uri, done), ())
        written = BatchRecords(context.base.store, context.clock).count_shares(batch)
        reason = f"begun before, written: {show_count(written, 'region')}" if written else "not begun"
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
            f"batch {batch} is written: {show_count(rows, 'row')} in {show_count(done.regions, 'region')}",
            {"stream": batch.stream, "batch": batch.batch, "rows": rows, "regions": done.regions},
        )


def _in_this_process(context: JobContext, source: Source, asked: BatchRequest, request: IngestRequest) -> IngestReport:
    """Ingest a small batch.

    Raises:
        LeftToSparkError: Spark was asked for, this is an application of Spark, or the source is not for this process.
    """
    if request.engine is Engine.SPARK:
        raise LeftToSparkError("it was asked for")
    if request.engine is Engine.AUTO and context.executors is not None:
        raise LeftToSparkError("this is an application of Spark, whose executors may see other files")
    base = context.base
    rows = read_files(source, base.settings.ingest.in_process_bytes)
    admission = RowAdmission.of(base, asked.spec_id, asked.delete_column)
    check = _input_suites().arrow_check(request.suites) if request.suites else None
    batch = ArrowRows(rows, admission, base, asked, check)
    place = Workplace(on_executors=False, reason=f"{show_bytes(rows.nbytes)} in {show_count(rows.num_rows, 'row')}")
    return replace(ingest_rows(batch, admission, base, asked), place=place)


def _input_suites() -> ModuleType:
    with extras_named():
        from memwal_core.quality import input_suite  # noqa: PLC0415 - Great Expectations takes seconds
    return input_suite
