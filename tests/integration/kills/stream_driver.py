"""A streaming query that writes the Parquet files of a directory through the regions of a table, one file per batch.

Arguments: table, input directory, checkpoint, directory for Spark's files, and ``once`` to end when all files are
written; otherwise it runs until it is killed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from memwal_core.spark.data_source import register

COLUMNS = "id long, name string, score double, gone boolean"


def main(table: str, source: str, checkpoint: str, scratch: str, until: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", scratch)
        .getOrCreate()
    )
    register(spark)
    arriving = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(source)
    sink = arriving.repartition(2).writeStream.format("memwal")
    sink = sink.options(uri=table, delete_column="gone", checkpointLocation=checkpoint)
    if until == "once":
        sink = sink.trigger(availableNow=True)
    sink.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
