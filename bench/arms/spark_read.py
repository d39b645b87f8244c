"""Reading a whole table in a process of its own; run by ``bench.isolated``."""

from __future__ import annotations

import logging
import os
import time

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

logging.basicConfig(level=logging.ERROR)


def in_process(uri: str) -> dict[str, float]:
    """Read all rows with the reader of this package, batch by batch."""
    from memwal_core.table import Table  # noqa: PLC0415

    start = time.perf_counter()
    rows = sum(batch.num_rows for batch in Table.open(uri).scan().batches())
    return {"seconds": time.perf_counter() - start, "rows": rows}


def on_spark(uri: str, slots: int, partition_rows: int) -> dict[str, float]:
    """Load the table and touch every column of every row, in a session whose Python workers run already."""
    # Only here: the memory of the other arm must not hold it.
    from bench.arms.spark_session import session  # noqa: PLC0415
    from memwal_core.spark.data_source import register  # noqa: PLC0415

    spark = session(slots)
    register(spark)

    def read() -> int:
        frame = spark.read.format("memwal").option("partition_rows", partition_rows).load(uri)
        count, _, _ = frame.selectExpr("count(id)", "sum(length(body))", "sum(size(vector))").collect()[0]
        return int(count)

    began = time.perf_counter()
    read()
    first = time.perf_counter() - began
    start = time.perf_counter()
    rows = read()
    done = time.perf_counter() - start
    spark.stop()
    return {"seconds": done, "first read": first, "rows": rows}
