"""A merge in a process of its own; run by ``bench.isolated``."""

from __future__ import annotations

import logging
import os
import time
from typing import Literal

os.environ.setdefault("LANCE_LOG", "error,lance::index=off")

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.sharing.place import Engine
from memwal_core.settings import MIB, MergeSettings, Settings
from memwal_core.table import Table

logging.basicConfig(level=logging.ERROR)

_LARGE = 2**40


def in_process(uri: str, way: Literal["join", "units"]) -> dict[str, float]:
    """Merge here, in one way, whatever the size."""
    merge = MergeSettings(max_bytes=_LARGE, join_max_bytes=_LARGE if way == "join" else 0)
    table = Table.open(uri, settings=Settings(merge=merge))
    start = time.perf_counter()
    table.run(MergeRequest(engine=Engine.LOCAL))
    return {"seconds": time.perf_counter() - start}


def on_spark(uri: str, slots: int, min_mib: int) -> dict[str, float]:
    """Merge through a local session that runs already, its Python workers too."""
    # Only here: the memory of the other arms must not hold it.

    from bench.arms.spark_session import session, wake  # noqa: PLC0415
    from memwal_core.spark.executors import SparkExecutors  # noqa: PLC0415
    from memwal_core.spark.session import LateSession  # noqa: PLC0415

    began = time.perf_counter()
    spark = session(slots)
    wake(spark)
    started = time.perf_counter() - began
    merge = MergeSettings(max_bytes=_LARGE, executors_min_bytes=min_mib * MIB)
    table = Table.open(uri, settings=Settings(merge=merge))
    executors = SparkExecutors(LateSession("memwal bench"), table.base)
    # One slot counts as one process, which `auto` would not use for small work.
    request = MergeRequest(engine=Engine.SPARK if slots == 1 else Engine.AUTO)
    start = time.perf_counter()
    table.run(request, executors=executors)
    done = time.perf_counter() - start
    spark.stop()
    return {"seconds": done, "session start": started}
