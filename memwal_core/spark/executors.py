"""Spark as the executors of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.job import MergeExecutors
from memwal_core.jobs.sharing.executors import EndT, Executors, FoundT, GivenT, PieceT
from memwal_core.spark.merge.workers import SparkWorkers
from memwal_core.spark.session import LateSession
from memwal_core.spark.tasks import SparkTasks


@dataclass(frozen=True)
class SparkExecutors(MergeExecutors, Executors):
    """The executors of one application. Its session starts when a job is large enough to need it.

    Attributes:
        session: The session; also of jobs that use Spark in ways of their own.
    """

    session: LateSession = field(kw_only=True)
    table_uri: str = field(kw_only=True)

    @classmethod
    def of(cls, session: LateSession, table: BaseTable) -> Self:
        """Use a session for a table, which executors reach by its address.

        Raises:
            InvalidRequestError: The table lives in this process's memory.
        """
        workers = SparkWorkers(session, table, table.storage_options)
        return cls(workers, session=session, table_uri=table.uri)

    @property
    def slots(self) -> int:
        """Tasks that run at once; starts the session."""
        return SparkTasks(self.session, self.table_uri).slots

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        """Apply a function to each share; see ``Executors.map``."""
        return SparkTasks(self.session, self.table_uri).map(stage, function, shares)

    def map_groups(
        self,
        function: Callable[[GivenT], FoundT],
        groups: Mapping[str, Sequence[GivenT]],
        then: Callable[[str, list[FoundT]], EndT],
    ) -> list[EndT]:
        """Go on with each group as soon as it is done; see ``Executors.map_groups``."""
        return SparkTasks(self.session, self.table_uri).map_groups(function, groups, then)

    def exchange(
        self,
        stage: str,
        spread: Callable[[GivenT], Iterable[tuple[int, PieceT]]],
        shares: Sequence[GivenT],
        gather: Callable[[Iterable[PieceT]], FoundT],
        parts: int,
    ) -> list[FoundT]:
        """Bring together what belongs together; see ``Executors.exchange``."""
        return SparkTasks(self.session, self.table_uri).exchange(stage, spread, shares, gather, parts)
