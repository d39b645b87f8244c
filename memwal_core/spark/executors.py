"""Spark as the executors of a job."""

from __future__ import annotations

from memwal_core.base_table import BaseTable
from memwal_core.spark.reachable import require_reachable
from memwal_core.spark.session import LateSession
from memwal_core.spark.tasks import SparkTasks


class SparkExecutors(SparkTasks):
    """The executors of one application. Its session starts when a job is large enough to need it.

    Executors open the table by its address. Storage options go into what each task is given, so prefer the
    executors' environment for secrets.

    Args:
        session: The session; also of jobs that use Spark in ways of their own.
        table: What the jobs work on.
    """

    def __init__(self, session: LateSession, table: BaseTable) -> None:
        """Start nothing.

        Raises:
            InvalidRequestError: The table lives in this process's memory.
        """
        require_reachable(table)
        super().__init__(session, table.uri)
        self.session = session
