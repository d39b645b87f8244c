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


@pytest.mark.parametrize("folder", ["file/below", "file", "/proc/nothing"])
def test_spark_without_a_folder_to_write_to_is_one_error_that_names_the_variable(tmp_path: Path, folder: str) -> None:
    """The JVM ended without an answer, and all that was told was a refused connection."""
    (tmp_path / "file").touch()
    named = str(tmp_path / folder)
    asks = "from memwal_core.spark.session import LateSession; LateSession('none')()"
    variables = {**os.environ, "SPARK_LOCAL_DIRS": named, "TMPDIR": str(tmp_path)}

    ran = subprocess.run([sys.executable, "-c", asks], env=variables, check=False, capture_output=True, text=True)

    told = ran.stderr.splitlines()[-1]
    assert told.startswith("memwal_core.errors.InvalidRequestError: Spark cannot write to a folder of SPARK_LOCAL_DIRS")
    assert named in told
    assert "name a folder with space that this process may write to in SPARK_LOCAL_DIRS, or unset it" in told
    assert list(tmp_path.glob("memwal-spark-*.log")) == []  # No JVM began.


def test_spark_that_ends_while_it_starts_is_one_error_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho no such Java >&2\nexit 1\n")
    java.chmod(0o755)
    asks = "from memwal_core.spark.session import LateSession; LateSession('none')()"
    variables = {**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    ran = subprocess.run([sys.executable, "-c", asks], env=variables, check=False, capture_output=True, text=True)

    told = ran.stderr.splitlines()[-1]
    assert told.startswith("memwal_core.errors.UnavailableError: Spark could not be started")
    (log,) = tmp_path.glob("memwal-spark-*.log")
    assert str(log) in told
    assert "no such Java" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["keep", "drop"])
def test_messages_of_java_go_to_a_file_that_only_failures_leave(tmp_path: Path, ending: str) -> None:
    # One folder to write to is enough for Spark.
    folders = f"/proc/nothing,{tmp_path / 'made'}"
    variables = {**os.environ, "TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": folders}

    ran = subprocess.run(
        [sys.executable, "-c", _STARTS, ending], env=variables, check=True, capture_output=True, text=True
    )

    assert ran.stdout.split()[:2] == ["10", "seen"]
    assert ran.stderr == ""
    kept = list(tmp_path.glob("memwal-spark-*.log"))
    assert [str(path) for path in kept] == ran.stdout.split()[2:] if ending == "keep" else kept == []
    assert all("noise of Java" in path.read_text() for path in kept)


_DIES = """
import logging, os
from pyspark import SparkContext
from memwal_core.errors import UnavailableError
from memwal_core.spark.session import LateSession
from memwal_core.spark.tasks import SparkTasks

logging.disable(logging.ERROR)  # What py4j says of it.
session = LateSession("quiet", {"spark.ui.enabled": "false"})
tasks = SparkTasks(session, "memory://t")
session()
java = SparkContext._gateway.proc.pid

def end(number):
    os.kill(java, 9)

def spread(number):
    yield 0, number

for asked in (
    lambda: tasks.map("a stage", end, [1]),
    lambda: tasks.map("a stage", end, [1]),
    lambda: tasks.exchange("a stage", spread, [1], list, 1),
    lambda: tasks.slots,
):
    try:
        asked()
    except UnavailableError as error:
        print(f"{error.what}, {error.facts['log']}")
session.stop()
"""


def test_java_process_that_is_gone_is_one_error_wherever_it_is_needed(tmp_path: Path) -> None:
    """It was a refused connection with a traceback, and the end of the session failed, too."""
    variables = {**os.environ, "TMPDIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell"}

    ran = subprocess.run([sys.executable, "-c", _DIES], env=variables, check=True, capture_output=True, text=True)

    (log,) = tmp_path.glob("memwal-spark-*.log")
    assert ran.stdout.splitlines() == [f"the Java process of Spark ended while the job needed it, {log}"] * 4
    assert ran.stderr == ""
