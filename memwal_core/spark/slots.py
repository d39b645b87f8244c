"""The slots of executors: how many there are, and what the Python of each does once."""

from __future__ import annotations

import gc
from functools import cache

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, TaskContext


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


def settle() -> None:
    """In a task, take what was imported out of garbage collection, which Spark runs after each one for 70 ms."""
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
