"""Shares of a job's work as tasks of one Spark job each time."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from memwal_core.errors import InternalError, InvalidRequestError, MemwalError, UnavailableError
from memwal_core.jobs.sharing.executors import Executors, FoundT, GivenT
from memwal_core.spark.session import Session, session_of

_DESCRIPTION = "spark.job.description"
_GROUP = "spark.jobGroup.id"
_INTERRUPT = "spark.job.interruptOnCancel"

_DONE, _FAILED, _BARE = "done", "failed", "bare"

_log = logging.getLogger(__name__)


class SparkTasks(Executors):
    """Runs shares on the executors of a session, which starts with the first of them.

    Each call is one Spark job, described by what it does, in the group of its table. What a task raises on purpose
    ends the call with that error; whatever else ends a task (a lost executor, a killed process) makes Spark repeat it.

    Args:
        spark: The session.
        table_uri: Names the group.
    """

    def __init__(self, spark: Session, table_uri: str) -> None:
        self._spark = spark
        self._table_uri = table_uri

    @property
    def slots(self) -> int:
        """Tasks that run at once."""
        return max(1, int(session_of(self._spark).sparkContext.defaultParallelism))

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        """Apply a function to each share; see ``Executors.map``."""
        if not shares:
            return []
        context = session_of(self._spark).sparkContext
        work = cloudpickle.dumps(partial(_outcome, function))  # type: ignore[no-untyped-call]
        given = context.parallelize([pickle.dumps(each) for each in shares], len(shares))
        with _described(context, f"memwal {self._table_uri}", f"{stage} [{self._table_uri}, {len(shares)} shares]"):
            try:
                # One action, collected once: doing a share again would write its files again.
                outcomes = given.map(_carrier(work)).setName(stage).collect()
            except (PySparkException, Py4JError) as error:
                raise UnavailableError(
                    "the executors did not finish their work",
                    remedy="read the log of the driver, and run the job again: what was done stands",
                    table=self._table_uri,
                    stage=stage,
                    cause=str(error),
                ) from error
        _log.info("executors ended: %s [shares=%d]", stage, len(shares))
        return [self._result(*pickle.loads(each)) for each in outcomes]  # noqa: S301 - our own tasks made them

    def _result(self, end: str, value: Any) -> Any:  # noqa: ANN401 - what the task returned
        if end == _DONE:
            return value
        if end == _FAILED:
            raise value
        if end == _BARE:
            raise InvalidRequestError(
                "an executor cannot import what the job needs",
                remedy="install memwal-core on every executor for the Python that is named, or give Spark a packed "
                "environment; docs/operating.md has the steps",
                missing=value["missing"],
                python=value["python"],
                host=value["host"],
            )
        raise InternalError("a task ended in an unknown way", remedy="report this", end=end)


def _outcome(function: Callable[[GivenT], FoundT], share: GivenT) -> tuple[str, object]:
    """Return what a share came to: an error on purpose is not to be repeated by Spark."""
    try:
        return _DONE, function(share)
    except MemwalError as error:
        return _FAILED, error


def _carrier(work: bytes) -> Callable[[bytes], bytes]:
    """Return a function that needs nothing of this package before it has begun, so that it can tell what is missing."""
    bare = _BARE

    def carry(share: bytes) -> bytes:
        import pickle  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        try:
            function, given = pickle.loads(work), pickle.loads(share)  # noqa: S301 - from our own driver
        except ImportError as error:
            facts = {"missing": error.name or str(error), "python": sys.executable, "host": socket.gethostname()}
            return pickle.dumps((bare, facts))
        return pickle.dumps(function(given))

    return carry


@contextmanager
def _described(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Name the Spark jobs of this thread, and give them the names that they had before afterwards."""
    before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION, _INTERRUPT)}
    context.setJobGroup(group, description)
    try:
        yield
    finally:
        for name, value in before.items():
            # None takes a property away.
            context.setLocalProperty(name, value)  # type: ignore[arg-type]
