"""The whole loop with the merge on Spark; see ``bench.loop_arms``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.loop_arms import Values, write_batches
from bench.spark_session import session, wake
from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.spark.merge import SparkReader
from memwal_core.spark.single_commit import SparkWorkers

_ROOT = Path(__file__).parents[1]


def on_running_session(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Put through our writer and merge through a session that is there already, its workers too."""
    spark = session(slots=2)
    wake(spark)
    start, durable = write_batches(uri, batches, count, memtable_rows)
    admin = TableAdmin.open(uri)
    options = admin.table.storage_options
    admin.merge(MergeRequest(reader=SparkReader(spark, options), workers=SparkWorkers(spark, admin.table, options)))
    done = time.perf_counter() - start
    spark.stop()
    return {"durable": durable, "seconds": done}


def by_spark_submit(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Put through our writer and merge with ``spark-submit jobs/merge.py``: everything starts cold."""
    start, durable = write_batches(uri, batches, count, memtable_rows)
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        str(_ROOT / "jobs" / "merge.py"),
        *("--uri", uri),
    ]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return {"durable": durable, "seconds": time.perf_counter() - start}
