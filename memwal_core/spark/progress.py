"""How far a stage on executors is, told while this process waits for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

TELL_EVERY_S = 5.0
"""Seconds from one look at the progress of a stage to the next."""

_log = logging.getLogger(__name__)


@contextmanager
def progress_told(context: SparkContext, group: str, stage: str, tasks: int, every_s: float) -> Iterator[None]:
    """Log how many tasks of the job that this thread starts next have ended, whenever more have.

    Args:
        context: The session's.
        group: The group of the job.
        stage: What is done, for people.
        tasks: How many there are in all.
        every_s: Seconds from one look to the next.
    """
    ended = Event()
    others = frozenset(context.statusTracker().getJobIdsForGroup(group))

    def watch() -> None:
        told = 0
        while not ended.wait(every_s):
            try:
                done = _done(context, group, others)
            except (PySparkException, Py4JError, OSError):
                continue  # The job itself tells what is wrong with the engine.
            if done > told:
                told = done
                _log.info("on executors: %s: %d of %d tasks ended", stage, done, tasks)

    watcher = Thread(target=watch, name="memwal-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _done(context: SparkContext, group: str, others: frozenset[int]) -> int:
    """Return how many tasks of new jobs in a group have ended."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group) if job not in others]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)
