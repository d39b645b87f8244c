"""The session of a job: that of its application, or one of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.jobs.context import JobContext
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.jvm_log import keep_log
from memwal_core.spark.session import LateSession

_log = logging.getLogger(__name__)


@contextmanager
def session_for(context: JobContext, job: str) -> Iterator[SparkSession]:
    """Give a job the session of its application, or one of its own.

    Raises:
        UnavailableError: Spark could not be started.
    """
    shared = context.executors.session if isinstance(context.executors, SparkExecutors) else None
    session = shared or LateSession(f"memwal {job} {context.opened.uri}")
    try:
        spark = session()
    except PySparkException as error:
        raise UnavailableError(
            "Spark could not be started",
            remedy="set JAVA_HOME to a Java that Spark supports",
            cause=str(error),
            log=keep_log() or "where Spark was started",
        ) from error
    try:
        yield spark
    except Exception as error:
        if not isinstance(error, InvalidRequestError) and (log := keep_log()):
            _log.warning("the messages of Spark are in %s", log)
        raise
    finally:
        if shared is None:
            session.stop()
