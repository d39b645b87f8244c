"""Merge progress in the facts of merge runs, so that a table that was restored can be told from one that was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.maintenance.ledger.history import RunRecord

PROGRESS_FACT = "progress"


def progress_fact(merged: Mapping[RegionId, int]) -> dict[str, object]:
    """Return the fact that a merge run records.

    Args:
        merged: Region -> merge progress of the table when the run ended.
    """
    return {PROGRESS_FACT: {str(region_id): generation for region_id, generation in merged.items()}}


def recorded_progress(runs: Iterable[RunRecord]) -> dict[RegionId, int]:
    """Return the highest progress that runs recorded, region by region; what cannot be read is skipped."""
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
