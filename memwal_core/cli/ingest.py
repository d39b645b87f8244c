"""`memwal ingest`: write a batch of rows into the regions of a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from memwal_core.admin import TableAdmin
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, parse_storage_options, print_json
from memwal_core.errors import UnavailableError
from memwal_core.ingest import BatchId, BatchRecords, IngestReport, ingest_facts
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.recording import recorded
from memwal_core.spark.ingest import FrameCheck, IngestRequest, ingest_frame
from memwal_core.spark.sources import Source, SourceFormat, batch_of_files, read_source
from memwal_core.spark.watching import Progress as Told
from memwal_core.writer import Takeover

STREAM = "ingest"
"""Stream of batches that do not name one."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What a command or a job was asked for.

    Attributes:
        source: What to read.
        batch: Batch id; empty to make one up from local files.
        stream: Whose batch it is.
        takeover: What to do about other live writers.
        order_by: Column that tells which row of a key is the newest; empty = order of the source.
        delete_column: Boolean column that is true on rows to delete; empty = none.
        suites: Files with expectation suites that the batch has to meet.
        spec_id: The region spec; None if there is one.
        dry_run: Only check and count.
    """

    source: Source
    batch: str
    stream: str
    takeover: Takeover
    order_by: str = ""
    delete_column: str = ""
    suites: Sequence[str] = ()
    spec_id: int | None = None
    dry_run: bool = False


def run_ingest(admin: TableAdmin, options: IngestOptions, progress: Told = lambda _done, _of: None) -> IngestReport:
    """Read a source on Spark and ingest it; without a session if the batch was written before.

    Raises:
        InvalidRequestError: Source, rows or options do not fit; nothing was written.
        ConflictError: A region seems to have another live writer.
        UnavailableError: Spark could not be started, or failed. Run again.
    """
    table = admin.table
    batch = BatchId(options.stream, options.batch or batch_of_files(options.source))
    source, done = options.source, BatchRecords(table.store, table.clock).done(batch)
    check = _check_by(options.suites)
    if done is not None:
        return IngestReport.of_done(table.uri, done)
    spark = _session(f"memwal ingest {table.uri}")
    try:
        frame = read_source(spark, source, table.state().schema)
        request = IngestRequest(
            batch=batch,
            source=str(source),
            spec_id=options.spec_id,
            takeover=options.takeover,
            order_by=options.order_by or None,
            delete_column=options.delete_column or None,
            check=check,
            dry_run=options.dry_run,
            progress=progress,
        )
        return ingest_frame(frame, table, request)
    finally:
        spark.stop()


def recorded_ingest(
    admin: TableAdmin, options: IngestOptions, holder: str | None = None, progress: Told = lambda _done, _of: None
) -> IngestReport:
    """Ingest as ``run_ingest`` does, and record the run unless it is a dry one."""
    if options.dry_run:
        return run_ingest(admin, options, progress)
    name = holder or admin.insight.new_holder()
    work = partial(run_ingest, admin, options, progress)
    return recorded(admin.insight, JobKey("ingest"), name, work, facts=ingest_facts)


def ingest(  # noqa: PLR0913 - one parameter per option
    uri: TableUri,
    sources: Annotated[
        list[str],
        typer.Argument(help="Files, addresses, or names of tables.", metavar="SOURCE", show_default=False),
    ],
    form: Annotated[
        SourceFormat | None, typer.Option("--format", help="What the sources are; told from the suffix by default.")
    ] = None,
    batch: Annotated[
        str,
        typer.Option(
            "--batch",
            help="Batch id: the same id is written once. By default it stands for the local files as they are now.",
            show_default=False,
        ),
    ] = "",
    stream: Annotated[str, typer.Option("--stream", help="Whose batch it is.")] = STREAM,
    order_by: Annotated[
        str, typer.Option("--order-by", help="Column that tells which row of a key is the newest.", show_default=False)
    ] = "",
    delete_column: Annotated[
        str,
        typer.Option("--delete-column", help="Boolean column that is true on rows to delete.", show_default=False),
    ] = "",
    takeover: Annotated[
        Takeover, typer.Option("--takeover", help="What to do about a region whose writer seems alive.")
    ] = Takeover.FAIL,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", help="Expectations for the rows, .json or .py; repeatable.")
    ] = None,
    spec: Annotated[int | None, typer.Option("--spec", help="Region spec to follow, if there are several.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Option of Spark's reader; repeatable.", metavar="KEY=VALUE")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the rows and count them by region.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Write rows into the regions of a table, once per batch id, with Spark on this machine.

    A batch with a row that does not fit is refused whole. On a cluster: `spark-submit jobs/ingest.py`.
    Exit codes: 0 done, 2 bad input or bad rows, 3 the batch was written before, 4 another live writer
    or a failure of storage or Spark (try again), 5 somebody must look at a region.
    """
    admin = open_admin(uri, storage_option)
    source = Source(sources, form, parse_storage_options(option), admin.table.storage_options)
    asked = IngestOptions(source, batch, stream, takeover, order_by, delete_column, tuple(suite or ()), spec, dry_run)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=json or dry_run, transient=True) as bar:
        shown = bar.add_task("regions", total=None)
        report = recorded_ingest(
            admin, asked, progress=lambda done, total: bar.update(shown, completed=done, total=total)
        )
    if json:
        print_json(report.to_dict())
    else:
        _show(report)
    sys.exit(report.outcome.exit_code)


def _check_by(suites: Sequence[str]) -> FrameCheck | None:
    if not suites:
        return None
    from memwal_core.quality.input_suite import frame_check  # noqa: PLC0415 - Great Expectations takes seconds

    return frame_check(suites)


def _session(name: str) -> SparkSession:
    try:
        return SparkSession.builder.appName(name).getOrCreate()
    except PySparkException as error:
        raise UnavailableError(
            "Spark could not be started", remedy="set JAVA_HOME to a Java that Spark supports", cause=str(error)
        ) from error


def _show(report: IngestReport) -> None:
    console = Console(highlight=False)
    line = f"{report.outcome.value}: batch {report.batch}, {report.rows_read:,} rows read"
    if report.outcome is JobOutcome.DONE:
        line += f", {report.rows_written:,} written into {len(report.regions)} regions, {report.seconds:.1f} s"
    console.print(line, markup=False, soft_wrap=True)
    if report.reason:
        console.print(report.reason, markup=False, soft_wrap=True)
    if not report.regions:
        return
    table = Table()
    for name in ("region", "value", "rows", "deletes", "written before"):
        table.add_column(name, overflow="fold")
    for region in report.regions:
        before = "yes" if region.written_before else ""
        table.add_row(region.region_id or "new", region.value, f"{region.rows:,}", f"{region.deletes:,}", before)
    console.print(table)
