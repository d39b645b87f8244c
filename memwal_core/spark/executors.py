"""Spark as the executors of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.job import MergeExecutors
from memwal_core.spark.merge.workers import SparkWorkers
from memwal_core.spark.session import LateSession


@dataclass(frozen=True, slots=True)
class SparkExecutors(MergeExecutors):
    """The executors of one application. Its session starts when a job is large enough to need it.

    Attributes:
        session: The session; None = each job that needs one starts its own.
    """

    session: LateSession | None = None

    @classmethod
    def of(cls, session: LateSession, table: BaseTable) -> Self:
        """Use a session for a table, which executors reach by its address.

        Raises:
            InvalidRequestError: The table lives in this process's memory.
        """
        return cls(SparkWorkers(session, table, table.storage_options), session)
