"""A checkpoint: flush, merge, and once more while that helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from memwal_core.ids import RegionId
from memwal_core.jobs.checkpoint.report import CheckpointReport, CheckpointRound
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.merge.report import MergeReport
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.runner import execute

_MOST_ROUNDS = 10
"""Writers that go on must not keep a checkpoint going for ever."""


def checkpoint(
    opened: OpenTable,
    *,
    regions: Sequence[RegionId] = (),
    fence: bool = False,
    dry_run: bool = False,
    progress: Progress = unwatched,
) -> CheckpointReport:
    """Bring every row that was written before the call into the base table.

    Args:
        opened: The table.
        regions: Only these; empty = all.
        fence: Take regions from living writers, too.
        dry_run: Only plan both jobs.
        progress: Is told how far the jobs are.

    Raises:
        LeaseHeldError: A flush or a merge is under way elsewhere.
        MemwalError: As for the two jobs. What was done stands.
    """
    began = opened.clock.monotonic()
    flush = FlushRequest(regions=tuple(regions), fence=fence, dry_run=dry_run)
    merge = MergeRequest(regions=tuple(regions), dry_run=dry_run)
    rounds: list[CheckpointRound] = []
    while len(rounds) < (1 if dry_run else _MOST_ROUNDS):
        flushed = cast(FlushReport, execute(opened, flush, progress=progress))
        merged = cast(MergeReport, execute(opened, merge, progress=progress))
        rounds.append(CheckpointRound(flushed, merged))
        if rounds[-1].is_complete or not rounds[-1].has_acted:
            break
    return CheckpointReport(opened.uri, tuple(rounds), dry_run, opened.clock.monotonic() - began)
