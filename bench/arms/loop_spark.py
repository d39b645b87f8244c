"""The whole loop with the merge on Spark; see ``bench.arms.loop``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.arms.loop import Values, write_batches
from bench.arms.spark_session import session, wake
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.table import Table

_ROOT = Path(__file__).parents[2]


def on_running_session(uri: str, batches: str, count: int, memtable_rows: int) -> Values:
    """Put through our writer and merge through a session that is there already, its workers too."""
    spark = session(slots=2)
    wake(spark)
    start, durable = write_batches(uri, batches, count, memtable_rows)
    table = Table.open(uri)
    table.run(MergeRequest(), executors=SparkExecutors(LateSession("memwal bench"), table.base))
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
        json.dumps({"uri": uri}),
    ]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(_ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return {"durable": durable, "seconds": time.perf_counter() - start}
