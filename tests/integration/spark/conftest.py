"""One JVM for all tests of this folder; mark them ``spark``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession.Builder]:
    """How the session is made: two task slots here, its files in a temporary directory."""
    directory: Path = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("memwal-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
    )
    yield builder
    last = SparkSession.getActiveSession()
    if last is not None:
        last.stop()


@pytest.fixture
def spark(spark_builder: SparkSession.Builder) -> SparkSession:
    """The session; made anew in the same JVM if something has stopped it."""
    with warnings.catch_warnings():
        # Spark forks to start its JVM and replaces the child at once, which does Lance no harm.
        warnings.filterwarnings("ignore", "lance is not fork-safe")
        return spark_builder.getOrCreate()
