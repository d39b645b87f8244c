"""One batch, from its rows to its record: the same steps whether the rows are in this process or on executors.

All rows are checked before one is written, then each region's rows are written by one call of ``write_share``, then the
batch is recorded as done. Repeated and rival runs of the batch leave the same rows as one run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission, RowProblem
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport, ShareReport
from memwal_core.ingest.share import ShareOutcome
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region.spec import RegionValue
from memwal_core.writer import Takeover
from memwal_core.writer.admission.row_checks import SAMPLE_ROWS
from memwal_core.writer.region_directory import RegionDirectory
from memwal_core.writer.table_context import TableContext

_log = logging.getLogger(__name__)

IngestProgress = Callable[[int, int], None]
"""Called with how many regions have their rows, and of how many."""


def _take_as_it_is() -> None:
    """Say nothing against the rows."""


def _unwatched(_done: int, _total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """How to ingest a batch, wherever its rows are.

    Attributes:
        batch: What it is called. The same id must mean the same rows.
        source: Where the rows come from, for people.
        spec_id: The region spec to follow; None if the table has exactly one.
        takeover: Whether writers that seem alive are left alone with an error, or fenced.
        order_by: Column that tells which row of a key is the newest; without it, the last row in the order of the
            batch wins. The table need not have the column.
        delete_column: Boolean column that is true on rows to delete; not a column of the table.
        dry_run: Only check and count.
        progress: Called with the number of regions written and of all regions.
        confirm: Called when all rows are checked and none is written; raises if they are no longer those of the batch.
    """

    batch: BatchId
    source: str = ""
    spec_id: int | None = None
    takeover: Takeover = Takeover.FAIL
    order_by: str | None = None
    delete_column: str | None = None
    dry_run: bool = False
    progress: IngestProgress = _unwatched
    confirm: Callable[[], None] = _take_as_it_is


@dataclass(frozen=True, slots=True)
class RegionCounts:
    """What the check of all rows found for one region: rows and keys, and the deletes among them."""

    rows: RegionRows
    deletes: int


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """What the check of all rows found.

    Attributes:
        regions: By region value as text.
        bad_rows: Rows that do not fit.
        problems: What is wrong with some of them.
    """

    regions: Mapping[str, RegionCounts]
    bad_rows: int = 0
    problems: Sequence[RowProblem] = ()


class BatchRows(Protocol):
    """The rows of a batch, in this process or on executors."""

    @property
    def names(self) -> Sequence[str]:
        """All columns."""

    def schema(self) -> pa.Schema:
        """Return the columns that belong to rows, without one that only tells their order."""

    def count(self) -> CheckedRows:
        """Check all rows and divide them by region."""

    def expect(self) -> None:
        """Check the rows by users' suites (``InvalidRequestError``)."""

    def write(
        self, regions: Mapping[str, RegionId], counts: Mapping[str, RegionCounts], written: int
    ) -> Iterable[ShareOutcome]:
        """Write each region's rows through ``write_share``.

        Args:
            regions: Region value as text -> region, of those to write.
            counts: Of all regions of the batch.
            written: Regions that earlier attempts wrote.
        """


def ingest_rows(rows: BatchRows, admission: RowAdmission, table: BaseTable, request: BatchRequest) -> IngestReport:
    """Write the rows of a batch into regions, unless it was written before; ``ingest_frame`` lists the errors."""
    if not request.dry_run:
        FreezeStore(table.store, table.ids, clock=table.clock).require_thawed()
    report = _Ingestion(rows, admission, table, request).run()
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


class _Ingestion:
    def __init__(self, rows: BatchRows, admission: RowAdmission, table: BaseTable, request: BatchRequest) -> None:
        self._rows = rows
        self._admission = admission
        self._table = table
        self._request = request
        self._began = table.clock.monotonic()
        self._records = BatchRecords(table.store, table.clock)

    def run(self) -> IngestReport:
        request = self._request
        done = self._records.done(request.batch)
        if done is not None:
            return IngestReport.of_done(self._table.uri, done, self._table.clock.monotonic() - self._began)
        self._check_columns()
        counts = self._counted()
        self._rows.expect()
        self._request.confirm()
        read = sum(each.rows.rows for each in counts.values())
        if request.dry_run:
            known = self._existing_regions(counts)
            shares = tuple(self._share(value, known.get(value), each) for value, each in counts.items())
            return self._report(JobOutcome.PLANNED, "only checked and counted", read, shares)
        self._records.begin(request.batch, {value: each.rows for value, each in counts.items()}, request.source)
        shares = self._write(counts)
        self._records.finish(request.batch, request.source)
        return self._report(JobOutcome.DONE, "", read, shares)

    def _check_columns(self) -> None:
        order_by = self._request.order_by
        if order_by is not None and list(self._rows.names).count(order_by) != 1:
            raise InvalidRequestError(
                "the batch does not have exactly one column to order rows by",
                remedy="name one of the columns found, or none",
                order_by=order_by,
                found=list(self._rows.names),
            )
        self._admission.check_schema(self._rows.schema())

    def _counted(self) -> Mapping[str, RegionCounts]:
        """Refuse the batch if some rows do not fit."""
        counted = self._rows.count()
        if not counted.problems:
            return dict(sorted(counted.regions.items()))
        problems = counted.problems
        raise InvalidRequestError(
            "rows of the batch do not fit the table; the whole batch was refused and nothing was written",
            remedy="correct the rows at their source and run the batch again",
            table=self._table.uri,
            batch=str(self._request.batch),
            rejected_rows=counted.bad_rows,
            rows_in_sound_pieces=sum(each.rows.rows for each in counted.regions.values()),
            problems=sorted({": column ".join(filter(None, (each.what, each.column))) for each in problems}),
            sample_rows=[row for each in problems for row in each.samples][:SAMPLE_ROWS],
        )

    def _write(self, counts: Mapping[str, RegionCounts]) -> tuple[ShareReport, ...]:
        request = self._request
        values = {value: self._admission.value_of(value) for value in counts}
        regions = self._directory().ensure_all(values.values())
        before = self._records.shares(request.batch)
        wanted = {value: regions[values[value]] for value in counts if value not in before}
        reports = {
            value: self._share(value, regions[values[value]], counts[value], before=True, attempt=share.attempt)
            for value, share in before.items()
        }
        for outcome in self._rows.write(wanted, counts, len(before)) if wanted else ():
            value = outcome.value
            reports[value] = self._share(
                value, wanted[value], counts[value], before=outcome.written_before, attempt=outcome.attempt
            )
        request.progress(len(counts), len(counts))
        return tuple(reports[value] for value in sorted(reports))

    def _directory(self) -> RegionDirectory:
        return TableContext(self._table, self._admission.spec.spec_id).load().directory

    def _existing_regions(self, counts: Mapping[str, RegionCounts]) -> dict[str, RegionId]:
        known: Mapping[RegionValue, RegionId] = self._directory().known
        values = {value: self._admission.value_of(value) for value in counts}
        return {value: known[values[value]] for value in counts if values[value] in known}

    def _share(
        self, value: str, region_id: RegionId | None, counts: RegionCounts, *, before: bool = False, attempt: str = ""
    ) -> ShareReport:
        shown = ", ".join("NULL" if part is None else str(part) for part in self._admission.value_of(value))
        region = str(region_id) if region_id is not None else ""
        return ShareReport(region, shown, counts.rows.rows, counts.deletes, before, attempt)

    def _report(self, outcome: JobOutcome, reason: str, read: int, shares: Sequence[ShareReport]) -> IngestReport:
        seconds = self._table.clock.monotonic() - self._began
        request = self._request
        return IngestReport(
            self._table.uri, request.batch, outcome, reason, request.source, read, tuple(shares), seconds
        )
