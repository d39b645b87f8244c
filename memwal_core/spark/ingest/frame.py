"""Writing a Spark DataFrame into the regions of a table, exactly once per batch id.

Two stages. Executors check all rows and determine their regions; nothing is written unless every row fits. Then
the rows are shuffled so that one task owns a region, and each task writes its regions through
``memwal_core.ingest.write_share``. The driver sees counts only. Repeated and speculative attempts of tasks,
and repeated runs of the batch, leave the same rows as one run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport, ShareReport
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.memtable.schema import TOMBSTONE_COLUMN
from memwal_core.region.spec import RegionValue
from memwal_core.spark.ingest.routed import BAD_ROWS, PROBLEM, REGION, columns_of_batch, routed
from memwal_core.spark.ingest.shares import ShareTasks
from memwal_core.spark.ingest.watching import Expected, Progress, spark_errors, watched
from memwal_core.spark.reachable import require_reachable
from memwal_core.writer import Takeover
from memwal_core.writer.admission.row_checks import SAMPLE_ROWS
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.table_context import TableContext

_log = logging.getLogger(__name__)

FrameCheck = Callable[[DataFrame], None]
"""Checks the rows to write, in the columns of the batch; raises ``InvalidRequestError`` to refuse them all."""


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """A batch of rows that a DataFrame has, and how to ingest it.

    Attributes:
        batch: What it is called. The same id must mean the same rows.
        spec_id: The region spec to follow; None if the table has exactly one.
        takeover: Whether writers that seem alive are left alone with an error, or fenced.
        order_by: Column that tells which row of a key is the newest; without it, the last row in the order of the
            DataFrame wins. The table need not have the column.
        delete_column: Boolean column that is true on rows to delete; not a column of the table.
        storage_options: For executors; they go into the task closure, so prefer the executors' environment for
            secrets. Those of the table if None.
        dry_run: Only check and count.
        progress: Called with the number of regions written and of all regions.
    """

    batch: BatchId
    source: str = ""
    spec_id: int | None = None
    takeover: Takeover = Takeover.FAIL
    order_by: str | None = None
    delete_column: str | None = None
    check: FrameCheck | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    dry_run: bool = False
    progress: Progress = field(default=lambda _done, _of: None)


def ingest_frame(frame: DataFrame, table: BaseTable, request: FrameBatch) -> IngestReport:
    """Write the rows of a DataFrame into regions, unless the batch was written before.

    Args:
        frame: The table's columns in any order, and those that ``request`` names.
        table: The base table, which executors open by its address.
        request: How.

    Returns:
        What was done. The batch is recorded as done; all its rows are in flushed MemTables.

    Raises:
        InvalidRequestError: Columns, types or rows do not fit (nothing was written), or an earlier attempt began the
            batch with other rows.
        ConflictError: A region seems to have another live writer, see ``takeover``. Other regions may have their
            rows; run the batch again.
        FencedError: Another writer took a region over. Decide who writes it, then run the batch again.
        UnavailableError: Storage or executors failed. Run the batch again; it continues where it stopped.
        CorruptionError: A region contradicts itself; follow the runbook that the error names.
        FrozenError: The table is frozen. Run the batch again once a person has thawed it.
    """
    require_reachable(table)
    if not request.dry_run:
        FreezeStore(table.store, table.ids, clock=table.clock).require_thawed()
    ingestion = _Ingestion(frame, table, request, table.clock.monotonic())
    report = ingestion.run()
    _log.info(
        "ingest ended [outcome=%s, batch=%s, rows_read=%d, rows_written=%d, regions=%d, seconds=%.1f] %s",
        report.outcome.value,
        report.batch,
        report.rows_read,
        report.rows_written,
        len(report.regions),
        report.seconds,
        report.reason,
    )
    return report


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the first stage found for one region: rows and keys, and the deletes among them."""

    rows: RegionRows
    deletes: int


class _Ingestion:
    def __init__(self, frame: DataFrame, table: BaseTable, request: FrameBatch, began: float) -> None:
        self._frame = frame
        self._table = table
        self._request = request
        self._began = began
        self._records = BatchRecords(table.store, table.clock)
        self._admission = RowAdmission.of(table, request.spec_id, request.delete_column)

    def run(self) -> IngestReport:
        done = self._records.done(self._request.batch)
        if done is not None:
            return IngestReport.of_done(self._table.uri, done, self._table.clock.monotonic() - self._began)
        self._check_columns()
        rows = routed(self._frame, self._admission, self._request.order_by).persist(StorageLevel.DISK_ONLY)
        try:
            with spark_errors(self._request.batch):
                return self._ingest(rows)
        finally:
            rows.unpersist()

    def _check_columns(self) -> None:
        request, schema = self._request, self._frame.schema
        if request.order_by is not None and request.order_by not in schema.names:
            raise InvalidRequestError(
                "the batch does not have the column to order rows by",
                remedy="name one of the columns found, or none",
                order_by=request.order_by,
                found=schema.names,
            )
        columns = columns_of_batch(self._frame, self._admission, request.order_by)
        types = self._frame.select(*(f"`{name}`" for name in columns)).schema
        # Timestamps with a zone fit whichever zone it is.
        self._admission.check_schema(to_arrow_schema(types, timezone="UTC"))

    def _ingest(self, rows: DataFrame) -> IngestReport:
        request = self._request
        counts = self._counted(rows)
        read = sum(each.rows.rows for each in counts.values())
        if request.check is not None:
            named = [f"`{name}`" for name in self._frame.columns if name in self._admission.schema.names]
            request.check(rows.where(f"not {TOMBSTONE_COLUMN}").select(*named))
        if request.dry_run:
            known = self._existing_regions(counts)
            shares = tuple(self._share(value, known.get(value), each) for value, each in counts.items())
            return self._report(JobOutcome.PLANNED, "only checked and counted", read, shares)
        self._records.begin(request.batch, {value: each.rows for value, each in counts.items()}, request.source)
        shares = self._write(rows, counts)
        self._records.finish(request.batch, request.source)
        return self._report(JobOutcome.DONE, "", read, shares)

    def _counted(self, rows: DataFrame) -> dict[str, _Counts]:
        """Run the first stage; refuse the batch if some rows do not fit."""
        key = [sf.col(f"`{name}`") for name in self._admission.key]
        counted = rows.groupBy(REGION).agg(
            sf.count("*").alias("rows"),
            sf.sum(BAD_ROWS).alias("bad"),
            sf.count_if(sf.col(TOMBSTONE_COLUMN)).alias("deletes"),
            sf.bit_xor(sf.xxhash64(*key)).alias("keys"),
        )
        found = {row[REGION]: row for row in counted.collect()}
        bad = found.pop(None, None)
        if bad is not None:
            self._refuse(rows, bad["bad"], sum(row["rows"] for row in found.values()))
        return {
            value: _Counts(RegionRows(row["rows"], f"{row['keys'] & (2**64 - 1):016x}"), row["deletes"])
            for value, row in sorted(found.items())
        }

    def _refuse(self, rows: DataFrame, bad: int, fitting: int) -> None:
        pieces = rows.where(sf.col(PROBLEM).isNotNull()).select(PROBLEM).limit(SAMPLE_ROWS).collect()
        problems = [json.loads(row[PROBLEM]) for row in pieces]
        raise InvalidRequestError(
            "rows of the batch do not fit the table; the whole batch was refused and nothing was written",
            remedy="correct the rows at their source and run the batch again",
            table=self._table.uri,
            batch=str(self._request.batch),
            rejected_rows=bad,
            rows_in_sound_pieces=fitting,
            problems=sorted({": column ".join(filter(None, (each["what"], each["column"]))) for each in problems}),
            sample_rows=[row for each in problems for row in each["samples"]][:SAMPLE_ROWS],
        )

    def _write(self, rows: DataFrame, counts: Mapping[str, _Counts]) -> tuple[ShareReport, ...]:
        request, table = self._request, self._table
        values = {value: self._admission.value_of(value) for value in counts}
        regions = self._directory().ensure_all(values.values())
        before = self._records.shares(request.batch)
        wanted = {value: regions[values[value]] for value in counts if value not in before}
        reports = {
            value: self._share(value, regions[values[value]], counts[value], before=True, attempt=share.attempt)
            for value, share in before.items()
        }
        if wanted:
            options = request.storage_options if request.storage_options is not None else table.storage_options
            tasks = ShareTasks(table.uri, dict(options), table.settings, request.batch, request.takeover, wanted)
            sizes = {value: each.rows.rows for value, each in counts.items()}
            expected = Expected(request.batch, len(before), len(counts), request.progress)
            with watched(self._records, expected, table.settings.ingest.progress_interval_s):
                outcomes = tasks.run(rows, sizes, self._admission.key)
            for outcome in outcomes:
                value = outcome.value
                reports[value] = self._share(
                    value, wanted[value], counts[value], before=outcome.written_before, attempt=outcome.attempt
                )
        request.progress(len(counts), len(counts))
        return tuple(reports[value] for value in sorted(reports))

    def _directory(self) -> RegionDirectory:
        table = self._table
        return (
            TableContext(table, table.settings, table.clock, table.ids, self._admission.spec.spec_id).load().directory
        )

    def _existing_regions(self, counts: Mapping[str, _Counts]) -> dict[str, RegionId]:
        known: Mapping[RegionValue, RegionId] = self._directory().known
        values = {value: self._admission.value_of(value) for value in counts}
        return {value: known[values[value]] for value in counts if values[value] in known}

    def _share(
        self, value: str, region_id: RegionId | None, counts: _Counts, *, before: bool = False, attempt: str = ""
    ) -> ShareReport:
        shown = ", ".join("NULL" if part is None else str(part) for part in self._admission.value_of(value))
        region = str(region_id) if region_id is not None else ""
        return ShareReport(region, shown, counts.rows.rows, counts.deletes, before, attempt)

    def _report(self, outcome: JobOutcome, reason: str, read: int, shares: Sequence[ShareReport]) -> IngestReport:
        return IngestReport(
            self._table.uri,
            self._request.batch,
            outcome,
            reason,
            self._request.source,
            read,
            tuple(shares),
            self._table.clock.monotonic() - self._began,
        )
