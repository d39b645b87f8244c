"""Spark as the executors of a job."""

from __future__ import annotations

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.job import MergeExecutors
from memwal_core.spark.merge.workers import SparkWorkers
from memwal_core.spark.session import LateSession
from memwal_core.spark.tasks import SparkTasks


class SparkExecutors(MergeExecutors, SparkTasks):
    """The executors of one application. Its session starts when a job is large enough to need it.

    Args:
        session: The session; also of jobs that use Spark in ways of their own.
        table: Executors reach it by its address.
    """

    def __init__(self, session: LateSession, table: BaseTable) -> None:
        """Start nothing.

        Raises:
            InvalidRequestError: The table lives in this process's memory.
        """
        MergeExecutors.__init__(self, SparkWorkers(session, table))
        SparkTasks.__init__(self, session, table.uri)
        self.session = session
