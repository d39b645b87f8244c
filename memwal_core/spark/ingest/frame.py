"""Writing a Spark DataFrame into the regions of a table, exactly once per batch id.

Two stages. Executors check all rows and determine their regions; nothing is written unless every row fits. Then
the rows are shuffled so that one task owns a region, and each task writes its regions through
``memwal_core.ingest.write_share``. The driver sees counts only. Repeated and speculative attempts of tasks,
and repeated runs of the batch, leave the same rows as one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from memwal_core.base_table import BaseTable
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ids import RegionId
from memwal_core.ingest.admission import RowAdmission, RowProblem
from memwal_core.ingest.batch import RegionRows, keys_digest
from memwal_core.ingest.ingestion import BatchRequest, CheckedRows, RegionCounts, ingest_rows
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport
from memwal_core.ingest.share import ShareOutcome
from memwal_core.spark.ingest.routed import BAD_ROWS, KEY_HASH, PROBLEM, REGION, aliases, columns_of_batch, routed
from memwal_core.spark.ingest.shares import ShareTasks
from memwal_core.spark.ingest.watching import Expected, spark_errors, watched
from memwal_core.spark.reachable import require_reachable
from memwal_core.writer.admission.row_checks import SAMPLE_ROWS

FrameCheck = Callable[[DataFrame], None]
"""Checks the rows to write, in the columns of the batch; raises ``InvalidRequestError`` to refuse them all."""


@dataclass(frozen=True, slots=True)
class FrameBatch(BatchRequest):
    """A batch of rows that a DataFrame has, and how to ingest it.

    Attributes:
        check: Checks the rows before any is written.
        storage_options: For executors; they go into the task closure, so prefer the executors' environment for
            secrets. Those of the table if None.
    """

    check: FrameCheck | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)


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
    admission = RowAdmission.of(table, request.spec_id, request.delete_column)
    rows = _FrameRows(frame, admission, table, request)
    with rows.kept():
        return ingest_rows(rows, admission, table, request)


class _FrameRows:
    """A form of ``BatchRows``."""

    def __init__(self, frame: DataFrame, admission: RowAdmission, table: BaseTable, request: FrameBatch) -> None:
        self._frame = frame
        self._admission = admission
        self._table = table
        self._request = request
        self._routed: DataFrame | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let rows that were routed stay on executors as long as the context lasts."""
        try:
            with spark_errors(self._request.batch, self._frame.sparkSession.sparkContext.pythonExec):
                yield
        finally:
            if self._routed is not None:
                self._routed.unpersist()

    @property
    def names(self) -> Sequence[str]:
        return list(self._frame.columns)

    def schema(self) -> pa.Schema:
        return columns_of_batch(self._frame, self._admission, self._request.order_by)

    def count(self) -> CheckedRows:
        """Run the first stage."""
        rows = self._rows()
        counted = rows.groupBy(REGION).agg(
            sf.count("*").alias("rows"),
            sf.sum(BAD_ROWS).alias("bad"),
            sf.count_if(sf.col(TOMBSTONE_COLUMN)).alias("deletes"),
            sf.sum(sf.col(KEY_HASH).cast("decimal(20, 0)")).alias("keys"),
        )
        found = {row[REGION]: row for row in counted.collect()}
        bad = found.pop(None, None)
        counts = {
            value: RegionCounts(RegionRows(row["rows"], keys_digest(int(row["keys"]))), row["deletes"])
            for value, row in found.items()
        }
        if bad is None:
            return CheckedRows(counts)
        pieces = rows.where(sf.col(PROBLEM).isNotNull()).select(PROBLEM).limit(SAMPLE_ROWS).collect()
        return CheckedRows(counts, bad["bad"], [RowProblem(**json.loads(row[PROBLEM])) for row in pieces])

    def expect(self) -> None:
        if self._request.check is not None:
            columns = aliases(self._admission.schema.names)
            named = [name for name in self._frame.columns if name in columns]
            rows = self._rows().where(f"not {TOMBSTONE_COLUMN}").select(*(columns[name] for name in named))
            self._request.check(rows.toDF(*named))

    def write(
        self, regions: Mapping[str, RegionId], counts: Mapping[str, RegionCounts], written: int
    ) -> list[ShareOutcome]:
        """Run the second stage."""
        request, table = self._request, self._table
        options = request.storage_options if request.storage_options is not None else table.storage_options
        columns = tuple(self._admission.schema.names)
        tasks = ShareTasks(table.uri, dict(options), table.settings, request.batch, request.takeover, regions, columns)
        sizes = {value: each.rows.rows for value, each in counts.items()}
        expected = Expected(request.batch, written, len(counts), request.progress)
        records = BatchRecords(table.store, table.clock)
        with watched(records, expected, table.settings.ingest.progress_interval_s):
            return tasks.run(self._rows(), sizes, self._admission.key)

    def _rows(self) -> DataFrame:
        if self._routed is None:
            rows = routed(self._frame, self._admission, self._request.order_by)
            self._routed = rows.persist(StorageLevel.DISK_ONLY)
        return self._routed
