"""Shares of a job's work as tasks of one Spark job each time."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, cloudpickle
from pyspark.errors import PySparkException

from memwal_core.errors import InternalError, MemwalError, UnavailableError
from memwal_core.jobs.sharing.executors import EndT, Executors, FoundT, GivenT, PieceT
from memwal_core.spark.progress import TELL_EVERY_S, progress_told
from memwal_core.spark.reachable import bare_executor, bare_executor_behind
from memwal_core.spark.session import Session, cause_without_code, java_alive, session_of
from memwal_core.spark.slots import settled, slots_of
from memwal_core.storage.concurrent import map_concurrently

_DESCRIPTION = "spark.job.description"
_GROUP = "spark.jobGroup.id"
_INTERRUPT = "spark.job.interruptOnCancel"
_POOL = "spark.scheduler.pool"

_DONE, _FAILED, _BARE = "done", "failed", "bare"

_Outcome = tuple[str, object]
"""How a share or a part ended, and what it came to."""

_log = logging.getLogger(__name__)


class SparkTasks(Executors):
    """Runs shares on the executors of a session, which starts with the first of them.

    Each call is one Spark job, described by what it does, in the group of its table. What a task raises on purpose
    ends the call with that error; whatever else ends a task (a lost executor, a killed process) makes Spark repeat it.

    Args:
        tell_every_s: Seconds from one look at the progress, which the log tells, to the next.
    """

    def __init__(self, spark: Session, table_uri: str, tell_every_s: float = TELL_EVERY_S) -> None:
        self._spark = spark
        self._table_uri = table_uri
        self._tell_every_s = tell_every_s

    @property
    def slots(self) -> int:
        """Tasks that run at once."""
        with java_alive(self._table_uri):
            return slots_of(session_of(self._spark).sparkContext)

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        """Apply a function to each share; see ``Executors.map``."""
        with self._told(stage, len(shares)):
            return self._mapped(stage, function, shares)

    def map_groups(
        self,
        function: Callable[[GivenT], FoundT],
        groups: Mapping[str, Sequence[GivenT]],
        then: Callable[[str, list[FoundT]], EndT],
    ) -> list[EndT]:
        """Go on with each group as soon as it is done; see ``Executors.map_groups``. Each is one Spark job."""
        with self._told(", ".join(groups), sum(map(len, groups.values()))):
            return map_concurrently(
                lambda stage: then(stage, self._mapped(stage, function, groups[stage])), groups, len(groups)
            )

    def _mapped(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        if not shares:
            return []
        # One action, collected once: doing a share again would write its files again.
        work = self._shared(shares).flatMap(_carrier(partial(_outcomes, function)))
        return self._collected(stage, work, len(shares))

    def exchange(
        self,
        stage: str,
        spread: Callable[[GivenT], Iterable[tuple[int, PieceT]]],
        shares: Sequence[GivenT],
        gather: Callable[[Iterable[PieceT]], FoundT],
        parts: int,
    ) -> list[FoundT]:
        """Bring together what belongs together; see ``Executors.exchange``.

        Spark's shuffle carries the pieces: through the disks of the executors, bounded in memory.
        """
        with self._told(stage, max(1, len(shares)) + parts):
            pieces = self._shared(shares).flatMap(_carrier(partial(_pieces, spread)))
            parted = pieces.partitionBy(parts, _itself()).mapPartitions(_carrier(partial(_gathered, gather)))
            return self._collected(stage, parted, len(shares))

    def _shared(self, shares: Sequence[object]) -> RDD[bytes]:
        context = session_of(self._spark).sparkContext
        return context.parallelize([pickle.dumps(each) for each in shares], max(1, len(shares)))

    @contextmanager
    def _told(self, stage: str, tasks: int) -> Iterator[None]:
        """Tell the progress of some tasks, if there are any, and whether Spark is gone."""
        if not tasks:
            yield
            return
        context = session_of(self._spark).sparkContext
        with java_alive(self._table_uri), progress_told(context, self._group, stage, tasks, self._tell_every_s):
            yield

    @property
    def _group(self) -> str:
        return f"memwal {self._table_uri}"

    def _collected(self, stage: str, work: RDD[tuple[int, bytes]], shares: int) -> list[Any]:
        context, description = session_of(self._spark).sparkContext, f"{stage} [{self._table_uri}, {shares} shares]"
        try:
            with _described(context, self._group, description):
                outcomes = work.setName(stage).collect()
        except (PySparkException, Py4JError) as error:
            raise bare_executor_behind(error, context.pythonExec) or UnavailableError(
                "the executors did not finish their work",
                remedy="read the log of the driver, and run the job again: what was done stands",
                table=self._table_uri,
                stage=stage,
                cause=cause_without_code(error),
            ) from error
        _log.info("executors ended: %s [shares=%d]", stage, shares)
        return [self._result(*pickle.loads(each)) for _, each in outcomes]  # noqa: S301 - our own tasks made them

    def _result(self, end: str, value: Any) -> Any:  # noqa: ANN401 - what the task returned
        if end == _DONE:
            return value
        if end == _FAILED:
            raise value
        if end == _BARE:
            raise bare_executor(**value)
        raise InternalError("a task ended in an unknown way", remedy="report this", end=end)


def _outcome(function: Callable[[GivenT], FoundT], share: GivenT) -> _Outcome:
    """Return what a share came to: an error on purpose is not to be repeated by Spark."""
    with settled():
        try:
            return _DONE, function(share)
        except MemwalError as error:
            return _FAILED, error


def _outcomes(function: Callable[[GivenT], FoundT], share: GivenT) -> Iterator[tuple[int, _Outcome]]:
    """Yield what a share came to."""
    yield 0, _outcome(function, share)


def _pieces(spread: Callable[[GivenT], Iterable[tuple[int, PieceT]]], share: GivenT) -> Iterator[tuple[int, _Outcome]]:
    """Yield what a share was spread to; an error on purpose goes to a part, which comes to it."""
    with settled():
        try:
            for part, piece in spread(share):
                yield part, (_DONE, piece)
        except MemwalError as error:
            yield 0, (_FAILED, error)


def _gathered(
    gather: Callable[[Iterable[PieceT]], FoundT], pieces: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, _Outcome]]:
    """Yield what a part came to: the first error that is among its pieces, if there is one."""
    unsound: list[_Outcome] = []

    def sound() -> Iterator[PieceT]:
        for _, pickled in pieces:
            end, piece = pickle.loads(pickled)  # noqa: S301 - our own tasks made them
            if end == _DONE:
                yield piece
            else:
                unsound.append((end, piece))

    outcome = _outcome(gather, sound())
    yield 0, unsound[0] if unsound else outcome


def _carrier(
    function: Callable[[Any], Iterable[tuple[int, _Outcome]]],
) -> Callable[[bytes | Iterable[tuple[int, bytes]]], Iterator[tuple[int, bytes]]]:
    """Return a function that needs nothing of this package before it has begun, so that it can tell what is missing.

    It is given a share, pickled, or the pieces of a part, each with the number of that; it yields pickled outcomes.
    """
    bare, work = _BARE, cloudpickle.dumps(function)  # type: ignore[no-untyped-call]

    def carry(given: bytes | Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        import pickle  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        try:
            function = pickle.loads(work)  # noqa: S301 - from our own driver
            if isinstance(given, bytes):
                given = pickle.loads(given)  # noqa: S301 - from our own driver
        except ImportError as error:
            facts = {"missing": error.name, "python": sys.executable, "host": socket.gethostname(), "cause": str(error)}
            yield 0, pickle.dumps((bare, facts))
            return
        for part, outcome in function(given):
            yield part, pickle.dumps(outcome)

    return carry


def _itself() -> Callable[[int], int]:
    """Return a function that gathers each part at the place of its number, also on bare executors."""
    return lambda part: part


@contextmanager
def _described(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Name the Spark jobs of this thread, and give them the names that they had before afterwards."""
    before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION, _INTERRUPT, _POOL)}
    context.setJobGroup(group, description)
    # Tables of one application share its slots fairly, where its scheduler is told to be fair.
    context.setLocalProperty(_POOL, group)
    try:
        yield
    finally:
        for name, value in before.items():
            # None takes a property away.
            context.setLocalProperty(name, value)  # type: ignore[arg-type]
