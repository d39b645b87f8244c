"""Merge progress in the facts of merge runs; it shows whether a table was restored to an earlier version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memwal_core.coordination.ledger.history import RunRecord
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id

PROGRESS_FACT = "progress"


def progress_fact(merged: Mapping[RegionId, int]) -> dict[str, object]:
    """Return the fact that a merge run records: the merge progress of each region when the run ended."""
    return {PROGRESS_FACT: {str(region_id): generation for region_id, generation in merged.items()}}


def recorded_progress(runs: Iterable[RunRecord]) -> dict[RegionId, int]:
    """Return the highest progress that runs recorded, region by region; unreadable facts are skipped."""
    highest: dict[RegionId, int] = {}
    for run in runs:
        progress = run.facts.get(PROGRESS_FACT)
        if not isinstance(progress, Mapping):
            continue
        for name, generation in progress.items():
            try:
                region_id = parse_region_id(str(name))
            except InvalidRequestError:
                continue
            if isinstance(generation, int):
                highest[region_id] = max(highest.get(region_id, 0), generation)
    return highest
