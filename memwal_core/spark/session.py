"""Spark sessions that begin only when something needs them."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

Session = SparkSession | Callable[[], SparkSession]
"""A session, or what returns it when it is first needed."""


def session_of(given: Session) -> SparkSession:
    """Return the session, starting it if it has not begun."""
    return given if isinstance(given, SparkSession) else given()


class LateSession:
    """The session of an application, started by its first call and ended by ``stop``.

    A session takes seconds to start, which a run that has little or nothing to do can do without.

    Args:
        name: Shown in Spark's own pages.
    """

    def __init__(self, name: str) -> None:
        """Start nothing."""
        self._name = name
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """Return the session."""
        if self._session is None:
            self._session = SparkSession.builder.appName(self._name).getOrCreate()
        return self._session

    def stop(self) -> None:
        """End the session if it has begun."""
        if self._session is not None:
            self._session.stop()
            self._session = None
