"""A merge in a process of its own; run by ``bench.isolated``."""

from __future__ import annotations

import logging
import os
import time

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

import lance_namespace  # noqa: F401 - a strict commit imports it, which takes a second and is not the merge

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.settings import MIB, MergeSettings, Settings

logging.basicConfig(level=logging.ERROR)

_LARGE = 2**40


def in_process(uri: str, strategy: str) -> dict[str, float]:
    """Merge here, with one strategy, whatever the size."""
    merge = MergeSettings(strategy=strategy, max_bytes=_LARGE)
    admin = TableAdmin.open(uri, settings=Settings(merge=merge))
    start = time.perf_counter()
    admin.merge()
    return {"seconds": time.perf_counter() - start}


def on_spark(uri: str, slots: int, min_mib: int) -> dict[str, float]:
    """Merge through a local session that runs already, its Python workers too."""
    # Only here: the memory of the other arms must not hold it.
    from bench.spark_session import session, wake  # noqa: PLC0415
    from memwal_core.spark.merge import SparkReader  # noqa: PLC0415
    from memwal_core.spark.single_commit import SparkWorkers  # noqa: PLC0415

    began = time.perf_counter()
    spark = session(slots)
    wake(spark)
    started = time.perf_counter() - began
    merge = MergeSettings(max_bytes=_LARGE, executors_min_bytes=min_mib * MIB)
    if slots == 1:
        # One slot counts as one process, which `auto` would not use for small work.
        merge = merge.model_copy(update={"strategy": "single_commit"})
    admin = TableAdmin.open(uri, settings=Settings(merge=merge))
    options = admin.table.storage_options
    request = MergeRequest(reader=SparkReader(spark, options), workers=SparkWorkers(spark, admin.table, options))
    start = time.perf_counter()
    admin.merge(request)
    done = time.perf_counter() - start
    spark.stop()
    return {"seconds": done, "session start": started}
