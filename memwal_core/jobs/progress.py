"""Progress in the log, where nobody sees a bar: tasks of Airflow, services, applications."""

from __future__ import annotations

import logging

from memwal_core.clock import Clock
from memwal_core.jobs.context import Progress

EVERY_S = 30.0
"""Seconds after which the log says again how far a job is; shorter jobs say only how they ended."""

_log = logging.getLogger(__name__)


def logged(progress: Progress, job: str, table_uri: str, clock: Clock) -> Progress:
    """Return what passes progress on, and now and then logs it."""
    told_s = clock.monotonic()

    def tell(stage: str, done: int, total: int | None) -> None:
        nonlocal told_s
        progress(stage, done, total)
        if clock.monotonic() - told_s >= EVERY_S:
            told_s = clock.monotonic()
            _log.info("%s: %s: %d%s [table=%s]", job, stage, done, f" of {total}" if total else "", table_uri)

    return tell
