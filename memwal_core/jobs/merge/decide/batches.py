"""Divide a table's pending merge into work items for an orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.ids import RegionId
from memwal_core.jobs.merge.plan import MergePlan, RegionPlan

MAX_BATCH_REGIONS = 1_000
"""Regions per work item; their ids become arguments of one command."""


@dataclass(frozen=True, slots=True)
class MergeBatch:
    """Regions that one job merges.

    Attributes:
        through: Region -> progress once everything that could be merged at planning time is merged.
        size_bytes: Their Arrow size.
    """

    through: Mapping[RegionId, int]
    generations: int
    size_bytes: int


def batch_regions(plan: MergePlan, max_bytes: int) -> tuple[MergeBatch, ...]:
    """Pack the regions that have something to merge into jobs of up to ``max_bytes`` Arrow bytes, the largest first.

    What the plan leaves for later passes counts as well. A region's generations must be merged in order, so a
    region is never divided: one that alone exceeds the bound gets a job of its own, which then makes several
    commits.
    """
    waiting = [region for region in plan.regions if region.mergeable]
    waiting.sort(key=lambda region: region.mergeable_bytes, reverse=True)
    groups: list[list[RegionPlan]] = []
    room = 0
    for region in waiting:
        if not groups or region.mergeable_bytes > room or len(groups[-1]) == MAX_BATCH_REGIONS:
            groups.append([])
            room = max_bytes
        groups[-1].append(region)
        room -= region.mergeable_bytes
    return tuple(_batch(group) for group in groups)


def _batch(regions: list[RegionPlan]) -> MergeBatch:
    return MergeBatch(
        through={region.region_id: region.merged + region.mergeable for region in regions},
        generations=sum(region.mergeable for region in regions),
        size_bytes=sum(region.mergeable_bytes for region in regions),
    )
