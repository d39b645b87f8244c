"""Spark runs here: the chosen Java, the session fixture, Arrow between driver and workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])


def test_arrow_batches_cross_to_workers_and_back(spark: SparkSession) -> None:
    rows = spark.range(1000).repartition(2).mapInArrow(_double, "id long").collect()

    assert sorted(row.id for row in rows) == list(range(0, 2000, 2))


_STARTS = """
import os, sys
from memwal_core.spark.jvm_log import keep_log
from memwal_core.spark.session import LateSession

session = LateSession("quiet", {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.custom": "seen"})
spark = session()
spark.sparkContext._jvm.java.lang.System.err.println("noise of Java")
print(spark.range(10).count(), spark.conf.get("spark.custom"), sys.argv[1] == "keep" and keep_log())
session.stop()
"""


_SOCKETS = "spark.python.unix.domain.socket.enabled"

_ASKS = f"""
from memwal_core.spark.session import LateSession

session = LateSession("quiet", {{"spark.master": "local[1]", "spark.ui.enabled": "false"}})
context = session().sparkContext
print(context.getConf().get("{_SOCKETS}"), context.parallelize([1, 2], 2).map(lambda each: each * 2).collect())
session.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("told", "expected"), [("", "true"), (f"--conf {_SOCKETS}=false", "false")])
def test_tasks_of_python_talk_through_unix_sockets_unless_spark_was_told_otherwise(
    tmp_path: Path, told: str, expected: str
) -> None:
    variables = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"{told} pyspark-shell", "TMPDIR": str(tmp_path)}

    ran = subprocess.run([sys.executable, "-c", _ASKS], env=variables, check=True, capture_output=True, text=True)

    assert ran.stdout.split(maxsplit=1) == [expected, "[2, 4]\n"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["keep", "drop"])
def test_messages_of_java_go_to_a_file_that_only_failures_leave(tmp_path: Path, ending: str) -> None:
    variables = {**os.environ, "TMPDIR": str(tmp_path)}

    ran = subprocess.run(
        [sys.executable, "-c", _STARTS, ending], env=variables, check=True, capture_output=True, text=True
    )

    assert ran.stdout.split()[:2] == ["10", "seen"]
    assert ran.stderr == ""
    kept = list(tmp_path.glob("memwal-spark-*.log"))
    assert [str(path) for path in kept] == ran.stdout.split()[2:] if ending == "keep" else kept == []
    assert all("noise of Java" in path.read_text() for path in kept)
