"""Ingestion under kill -9: of the whole job, and of the processes of its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from testkit.tables.people import make_people_table, people
from tests.integration.kills.spark_jobs import kill_whole, require_success, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
ROWS = 1000
REGIONS = 2


def _log_of(report: Path) -> Path:
    return report.with_name("log.txt")


def _job(uri: str, source: str, report: Path) -> subprocess.Popen[bytes]:
    variables = {
        **os.environ,
        # One failed attempt must not end the job, and many WAL entries leave time to meet it in the middle.
        "PYSPARK_SUBMIT_ARGS": "--master local[2,8] --conf spark.ui.enabled=false pyspark-shell",
        "MEMWAL_INGEST__PUT_BYTES": "100",
    }
    document = {"uri": uri, "request": {"sources": [source], "batch": "1"}, "report": str(report)}
    with _log_of(report).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "ingest.py"), json.dumps(document)],
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _entries(uri: str) -> int:
    return sum(1 for _ in Path(uri, "_mem_wal").glob("*/wal/*.lance"))


def _kill_tasks(job: psutil.Process) -> int:
    """Kill the processes that run tasks, the children of PySpark's daemon, and return how many there were."""
    killed = 0
    for each in job.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if all("pyspark.daemon" in " ".join(one.cmdline()) for one in (each, each.parent()) if one is not None):
                each.kill()
                killed += 1
    return killed


@pytest.fixture
def site(tmp_path: Path) -> tuple[BaseTable, str, Path]:
    """A table, the rows to ingest, and the place of the report."""
    source = str(tmp_path / "rows.parquet")
    pq.write_table(people(*range(ROWS), name="a"), source)
    return make_people_table(str(tmp_path / "people.lance"), buckets=REGIONS), source, tmp_path / "report.json"


def _require_all_rows_once(table: BaseTable, report: Path) -> None:
    told = json.loads(report.read_text())
    assert (told["outcome"], told["rows_read"], len(told["regions"])) == ("done", ROWS, REGIONS)
    rows = MergedReader(table).to_arrow()
    assert sorted(rows.column("id").to_pylist()) == list(range(ROWS))


def test_killed_driver_leaves_a_batch_that_the_next_run_completes(site: tuple[BaseTable, str, Path]) -> None:
    table, source, report = site
    first = _job(table.uri, source, report)
    try:
        wait_for(lambda: _entries(table.uri) >= 20, first, _log_of(report))
    finally:
        kill_whole(first)
    assert 0 < MergedReader(table, consistency=Consistency.DURABLE).count() < ROWS
    assert BatchRecords(table.store, table.clock).done(BatchId("ingest", "1")) is None

    second = _job(table.uri, source, report)
    try:
        require_success(second, _log_of(report))
    finally:
        kill_whole(second)

    _require_all_rows_once(table, report)


def test_killed_tasks_are_repeated_and_leave_every_row_once(site: tuple[BaseTable, str, Path]) -> None:
    table, source, report = site
    job = _job(table.uri, source, report)
    try:
        wait_for(lambda: _entries(table.uri) >= 20, job, _log_of(report))
        killed = _kill_tasks(psutil.Process(job.pid))
        require_success(job, _log_of(report))
    finally:
        kill_whole(job)

    assert killed > 0
    assert max(int(region["attempt"]) for region in json.loads(report.read_text())["regions"]) > 1
    _require_all_rows_once(table, report)
