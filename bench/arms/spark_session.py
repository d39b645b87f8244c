"""A Spark session on this machine, as comparisons need it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def session(slots: int) -> SparkSession:
    """Start a local session.

    Args:
        slots: Tasks at once; each has a Python process of its own.
    """
    os.environ.update(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    return (
        SparkSession.builder.master(f"local[{slots}]")
        .appName("memwal bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )


def wake(spark: SparkSession) -> None:
    """Let the session start as many Python workers as it has slots, and load in each what a merge needs."""
    slots = spark.sparkContext.defaultParallelism

    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time  # noqa: PLC0415 - on the executor

        import memwal_core.jobs.merge.work.tasks  # noqa: F401, PLC0415 - on the executor

        time.sleep(0.5)  # long enough for the other slots to need workers of their own
        yield from batches

    rows = spark.sparkContext.parallelize([(number,) for number in range(slots)], slots)
    spark.createDataFrame(rows, "number long").mapInArrow(load, "number long").collect()
