"""Counts on a cluster, and looks for the cluster's secret on the command lines of this machine."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
context = session.sparkContext
secret = context.getConf().get("spark.authenticate.secret").encode()


def _seen(_: int) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += secret in path.read_bytes()
        except OSError:
            continue  # it has ended meanwhile
    return found


print(
    json.dumps({"sum": context.parallelize(range(10), 2).sum(), "seen": context.parallelize([0], 1).map(_seen).sum()})
)
session.stop()
