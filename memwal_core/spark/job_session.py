"""The session of a job: that of its application, or one of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from memwal_core.errors import InvalidRequestError, StoreRefusedError, UnavailableError
from memwal_core.jobs.context import JobContext
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.jvm_log import keep_log
from memwal_core.spark.reachable import bare_executor_behind
from memwal_core.spark.session import NO_ANSWER, LateSession, cause_without_code, java_alive

_log = logging.getLogger(__name__)


@contextmanager
def session_for(context: JobContext, job: str) -> Iterator[SparkSession]:
    """Give a job the session of its application, or one of its own; errors as of ``LateSession``.

    Raises:
        BareExecutorError: An executor lacks the package.
        UnavailableError: Spark gave up, or is gone. Run the job again.
    """
    shared = context.executors.session if isinstance(context.executors, SparkExecutors) else None
    session = shared or LateSession(f"memwal {job} {context.opened.uri}")
    spark = session()
    try:
        with java_alive(context.opened.uri), _failures_named(spark, context.opened.uri):
            yield spark
    except Exception as error:
        if not isinstance(error, StoreRefusedError | InvalidRequestError) and (log := keep_log()):
            _log.warning("the messages of Spark are in %s", log)
        raise
    finally:
        if shared is None:
            session.stop()


@contextmanager
def _failures_named(spark: SparkSession, table_uri: str) -> Iterator[None]:
    try:
        yield
    except NO_ANSWER:
        raise
    except (PySparkException, Py4JError) as error:
        raise bare_executor_behind(error, spark.sparkContext.pythonExec) or UnavailableError(
            "Spark did not finish the work of the job",
            remedy="read the log of the driver, and run the job again: what was done stands",
            table=table_uri,
            cause=cause_without_code(error),
        ) from error
