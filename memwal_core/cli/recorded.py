"""Jobs that a command or a Spark application runs by itself: under a lease of their own, and in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from memwal_core.admin import CatchupRequest, CompactRequest, GcRequest, MergeRequest, SnapshotRequest, TableAdmin
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.recording import Stepped, recorded_step

Request = TypeVar("Request", CatchupRequest, CompactRequest, GcRequest, MergeRequest, SnapshotRequest)


def run_recorded(
    admin: TableAdmin, key: JobKey, request: Request, work: Callable[[Request], Stepped], *, holder: str | None = None
) -> Stepped:
    """Run a job that takes its own lease, and record it; a dry run is not recorded.

    Args:
        admin: Of the table.
        key: The job and what it works on.
        request: What is asked for; its holder is set.
        work: The job.
        holder: Who runs it; made up if None.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    return recorded_step(
        admin.insight, key, holder, lambda name: work(replace(request, holder=name)), dry_run=request.dry_run
    )
