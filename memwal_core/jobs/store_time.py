"""How far this machine's clock is ahead of the store's, which dates what is deleted by its age."""

from __future__ import annotations

import logging
from datetime import timedelta

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.request import JobRequest
from memwal_core.storage.concurrent import FAST_STORES
from memwal_core.writer.claim.takeover import is_ahead

_log = logging.getLogger(__name__)


def ahead_of_store(context: JobContext, request: JobRequest) -> timedelta:
    """Return by how much to set this machine's clock back; zero unless it is ahead by more than clocks may differ.

    The store dated the beginning of this run a moment ago. A dry run has none, and deletes nothing; files of near
    stores have the times of this machine. Costs one request.
    """
    opened = context.opened
    if request.dry_run or opened.base.store.kind in FAST_STORES:
        return timedelta()
    now, dated = context.clock.now(), opened.ledger.stored_at(request.key)
    if dated is None or not is_ahead(now, dated):
        return timedelta()
    ahead = now - dated
    _log.warning(
        "the clock of this machine is ahead of the store's, by which ages are told [table=%s, seconds=%.0f]",
        opened.uri,
        ahead.total_seconds(),
    )
    return ahead
