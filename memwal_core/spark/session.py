"""Spark sessions that start only when they are needed."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.spark.jvm_log import keep_log, open_log

_UNIX_SOCKETS = {
    # Over TCP, each task of Python waits 40 ms for an acknowledgement that the other side delays.
    "spark.python.unix.domain.socket.enabled": "true",
    # YARN's temporary directories make addresses that are too long for a socket.
    "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - the names in it are random, the sockets their owner's
}

# It tells of each connection to the JVM that ends.
logging.getLogger("py4j").setLevel(logging.WARNING)

_FOLDERS = "SPARK_LOCAL_DIRS"
_YARN_CONTAINER = "CONTAINER_ID"
"""Where it is set, Spark takes the folders of YARN."""

_NO_CAUSE = ("An error occurred while calling", "Driver stacktrace")
"""Lines around causes."""

NO_ANSWER = (Py4JNetworkError, ConnectionError, EOFError)
"""What calls end with once the Java process of Spark is gone."""

Session = SparkSession | Callable[[], SparkSession]
"""A session, or what returns it when it is first needed."""


def session_of(given: Session) -> SparkSession:
    """Return the session; one that is given as a function starts now."""
    return given if isinstance(given, SparkSession) else given()


def cause_without_code(error: Exception) -> str:
    """Return what an error of Spark says: the first and the last line before the places in Java's code."""
    lines = [line.strip(": ") for line in takewhile(lambda line: not line.startswith("\tat "), str(error).splitlines())]
    told = [line for line in lines if line and not line.startswith(_NO_CAUSE)]
    return " ... ".join(dict.fromkeys([*told[:1], *told[-1:]]))


@contextmanager
def java_alive(table_uri: str) -> Iterator[None]:
    """Turn what calls of Spark end with after its Java process did into one of our errors.

    Raises:
        UnavailableError: The process is gone. Run again; what was done stands.
    """
    try:
        yield
    except NO_ANSWER as error:
        raise UnavailableError(
            "the Java process of Spark ended while the job needed it",
            remedy="read its log, give it more memory (spark.driver.memory) if it had too little, and run the job "
            "again: what was done stands",
            table=table_uri,
            cause=type(error).__name__,
            log=keep_log() or "where Spark was started",
        ) from error


class LateSession:
    """The session of an application, started by its first call and ended by ``stop``.

    A session takes seconds to start, which a run with little or nothing to do can save. One that the caller has
    already is used, and left to the caller. A JVM that has to be started writes its messages to a file.
    """

    def __init__(self, name: str, configuration: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._configuration = dict(configuration or {})
        self._lock = threading.Lock()
        # Active sessions are those of one thread, and the first call may come from another.
        self._active = SparkSession.getActiveSession()
        self._session: SparkSession | None = None
        self._is_own = False

    def __call__(self) -> SparkSession:
        """Return the session, the same in all threads.

        Raises:
            InvalidRequestError: ``SPARK_LOCAL_DIRS`` has no folder that can be written to.
            UnavailableError: Spark could not be started.
        """
        with self._lock:
            if self._session is None:
                active = self._active or SparkSession.getActiveSession()
                self._is_own = active is None
                self._session = active or self._new()
            return self._session

    def _new(self) -> SparkSession:
        # The JVM would end without an answer, which says nothing of the reason.
        _require_folder()
        try:
            return self._started()
        except (PySparkException, Py4JError, OSError) as error:
            raise UnavailableError(
                "Spark could not be started",
                remedy="set JAVA_HOME to a Java that Spark supports, and correct what the cause or the log names",
                cause=cause_without_code(error),
                log=keep_log() or "where Spark was started",
            ) from error

    def _started(self) -> SparkSession:
        configuration = SparkConf().setAppName(self._name).setAll(list(self._configuration.items()))
        # Neither that of an earlier session in this process nor that of spark-submit.
        if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001 - no public way
            with open_log() as log, warnings.catch_warnings():
                # The child becomes Java at once.
                warnings.filterwarnings("ignore", "lance is not fork-safe")
                gateway = launch_gateway(configuration, {"stderr": log})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - no public way
        for name, value in _UNIX_SOCKETS.items():
            # What spark-submit was told, or its file of defaults, is a property of the JVM by now.
            if SparkContext.getSystemProperty(name) is None:
                SparkContext.setSystemProperty(name, value)
        return SparkSession.builder.config(conf=configuration).getOrCreate()

    def stop(self) -> None:
        """End the session if this started it."""
        if self._session is not None and self._is_own:
            # A Java process that is gone has stopped, and an error is under way that says so.
            with suppress(*NO_ANSWER):
                self._session.stop()
        self._session = None


def _require_folder() -> None:
    """Refuse folders for Spark's own files of which none can be written to; Spark needs one."""
    named = os.environ.get(_FOLDERS, "")
    if not named or _YARN_CONTAINER in os.environ:
        return
    problems = {}
    for folder in named.split(","):
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"0")
        except OSError as error:
            problems[folder] = error.strerror or str(error)
        else:
            return
    raise InvalidRequestError(
        f"Spark cannot write to a folder of {_FOLDERS}",
        remedy=f"name a folder with space that this process may write to in {_FOLDERS}, or unset it",
        folders=problems,
    )
