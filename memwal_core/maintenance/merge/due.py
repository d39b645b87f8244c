"""Which regions are due for a merge: what waits in each, and the verdict on every trigger."""

from __future__ import annotations

from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.ids import RegionId
from memwal_core.maintenance.merge.plan import MergePlan, RegionPlan
from memwal_core.maintenance.merge.triggers import TriggerVerdict, WaitingGenerations, judge_triggers
from memwal_core.manifest import ManifestStore, RegionManifest
from memwal_core.settings import MergeTriggerSettings
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import generation_path


def judge_regions(
    table: BaseTable, manifests: ManifestStore, plan: MergePlan, triggers: MergeTriggerSettings, concurrency: int
) -> dict[RegionId, TriggerVerdict]:
    """Judge every region of a plan. Costs one manifest and one listing for each in which something waits.

    Args:
        table: The base table.
        manifests: Its region manifests.
        plan: A merge planned now.
        triggers: The thresholds.
        concurrency: Requests under way at once.

    Returns:
        Region -> whether it is due, and how far each trigger is from firing.

    Raises:
        UnavailableError: Storage failed. Try again.
    """
    now = table.clock.now()
    nothing = judge_triggers(WaitingGenerations(0, 0, None), triggers)

    def judge(share: RegionPlan) -> TriggerVerdict:
        if not share.take and not share.waiting and not share.verdict.needs_human:
            return nothing
        manifest = manifests.load(share.region_id)
        return judge_triggers(waiting_generations(table, manifest, share, now), triggers)

    judged = map_concurrently(judge, plan.regions, concurrency)
    return {share.region_id: verdict for share, verdict in zip(plan.regions, judged, strict=True)}


def waiting_generations(
    table: BaseTable, manifest: RegionManifest, share: RegionPlan, now: datetime
) -> WaitingGenerations:
    """Measure what waits in a region.

    Args:
        table: The base table.
        manifest: The region's.
        share: Its part of a merge planned now.
        now: Wall time, timezone UTC.
    """
    recorded = [each for each in manifest.flushed_generations if each.generation > share.merged]
    taken = sum(each.size_bytes for each in share.take) + share.waiting_bytes
    size = max(taken, sum(each.in_memory_bytes or 0 for each in recorded))
    oldest = min(recorded, key=lambda each: each.generation, default=None)
    written = (
        [info.modified for info in table.store.list_objects(generation_path(manifest.region_id, oldest.path))]
        if oldest is not None
        else []
    )
    age_s = (now - max(written)).total_seconds() if written else None
    return WaitingGenerations(len(recorded), size, age_s)
