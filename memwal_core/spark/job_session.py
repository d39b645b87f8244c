"""The session of a job: that of its application, or one of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.context import JobContext
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.jvm_log import keep_log
from memwal_core.spark.session import LateSession, java_alive

_log = logging.getLogger(__name__)


@contextmanager
def session_for(context: JobContext, job: str) -> Iterator[SparkSession]:
    """Give a job the session of its application, or one of its own; errors as of ``LateSession``."""
    shared = context.executors.session if isinstance(context.executors, SparkExecutors) else None
    session = shared or LateSession(f"memwal {job} {context.opened.uri}")
    spark = session()
    try:
        with java_alive(context.opened.uri):
            yield spark
    except Exception as error:
        if not isinstance(error, InvalidRequestError) and (log := keep_log()):
            _log.warning("the messages of Spark are in %s", log)
        raise
    finally:
        if shared is None:
            session.stop()
