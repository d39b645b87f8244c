"""Spark sessions that start only when they are needed."""

from __future__ import annotations

from collections.abc import Callable

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

    def __init__(self, name: str) -> None:
        self._name = name
        self._session: SparkSession | None = None
        self._is_own = False

    def __call__(self) -> SparkSession:
        """Return the session."""
        if self._session is None:
            active = SparkSession.getActiveSession()
            self._is_own = active is None
            self._session = active or SparkSession.builder.appName(self._name).getOrCreate()
        return self._session

    def stop(self) -> None:
        """End the session if this started it."""
        if self._session is not None and self._is_own:
            self._session.stop()
        self._session = None
