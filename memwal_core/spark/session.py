"""Spark sessions that start only when they are needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

Session = SparkSession | Callable[[], SparkSession]
"""A session, or what returns it when it is first needed."""


def session_of(given: Session) -> SparkSession:
    """Return the session; one that is given as a function starts now."""
    return given if isinstance(given, SparkSession) else given()


class LateSession:
    """The session of an application, started by its first call and ended by ``stop``.

    A session takes seconds to start, which a run with little or nothing to do can save. One that the caller has
    already is used, and left to the caller.
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
        """Return the session, the same in all threads."""
        with self._lock:
            if self._session is None:
                active = self._active or SparkSession.getActiveSession()
                self._is_own = active is None
                builder = SparkSession.builder.appName(self._name)
                for name, value in self._configuration.items():
                    builder = builder.config(name, value)
                self._session = active or builder.getOrCreate()
            return self._session

    def stop(self) -> None:
        """End the session if this started it."""
        if self._session is not None and self._is_own:
            self._session.stop()
        self._session = None
