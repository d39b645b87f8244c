"""A driver on a cluster: writes a batch, streams files, and prints what it reads as JSON.

Arguments: master, table, storage options as JSON, input directory, checkpoint, directory for Spark's files.
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from memwal_core.spark.data_source import register

COLUMNS = "id long, name string, score double"


def main(master: str, table: str, storage: str, source: str, checkpoint: str, scratch: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", scratch)
        .getOrCreate()
    )
    register(spark)
    options = {"uri": table, **{f"storage.{name}": value for name, value in json.loads(storage).items()}}
    written = spark.range(500, 3000).selectExpr("id", "'batch' as name", "double(id) as score").repartition(4)
    written.write.format("memwal").mode("append").options(**options).save()
    stream = spark.readStream.schema(COLUMNS).parquet(source).writeStream.format("memwal").options(**options)
    stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    frame = spark.read.format("memwal").options(**options).option("partition_rows", "300").load()
    hosts = frame.selectExpr("id").mapInArrow(_where, "executor string").distinct().count()
    counts = {row["name"]: row["count"] for row in frame.groupBy("name").count().collect()}
    total = frame.selectExpr("sum(id) as total").head()["total"]
    tasks = frame.rdd.getNumPartitions()
    print(json.dumps({"counts": counts, "total": total, "tasks": tasks, "executors": hosts}))
    spark.stop()


def _where(batches):
    for _ in batches:
        # The parent of a Python worker is its executor's daemon.
        yield pa.record_batch({"executor": [str(os.getppid())]})


if __name__ == "__main__":
    main(*sys.argv[1:])
