"""The slots of executors: how many there are, and what the Python of each does once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, TaskContext

from memwal_core.native.arenas import limit_arenas


def slots_of(context: SparkContext) -> int:
    """Return how many tasks run at once on the executors that have registered; before any has, Spark's own guess.

    ``defaultParallelism`` says two where there is one. Dynamic allocation begins with few and starts more for the
    tasks that wait, so that it has at least two if it may.
    """
    scala = context._jsc.sc()  # noqa: SLF001 - Spark tells it nowhere else
    try:
        running = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:  # It is not part of Spark's public interface.
        running = 0
    return max(1, running or int(context.defaultParallelism), min(2, _most_allocated(context.getConf())))


def _most_allocated(conf: SparkConf) -> int:
    """Return how many slots dynamic allocation may have; 0 where it is off."""
    if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return 0
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", "2147483647"))
    return executors * int(conf.get("spark.executor.cores", "1"))


@contextmanager
def settled() -> Iterator[None]:
    """Around the work of a task: keep few arenas, and collect nothing that was imported.

    Spark collects garbage after each task, for some 50 ms. A task may import more than those before it, so this looks
    again at the end of each.
    """
    if TaskContext.get() is not None:
        limit_arenas()
    try:
        yield
    finally:
        if TaskContext.get() is not None:
            _freeze(len(sys.modules))


@lru_cache(maxsize=1)
def _freeze(_modules: int) -> None:
    gc.freeze()
