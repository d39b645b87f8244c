"""Which regions are due for a merge: what waits in each, and the verdict on every trigger."""

from __future__ import annotations

from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.errors import DamagedError, ObjectNotFoundError
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.triggers import TriggerVerdict, WaitingGenerations, judge_triggers
from memwal_core.jobs.merge.plan import MergePlan, RegionPlan
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.settings import MergeTriggerSettings
from memwal_core.storage.concurrent import map_concurrently


def judge_regions(
    table: BaseTable, manifests: ManifestStore, plan: MergePlan, triggers: MergeTriggerSettings, concurrency: int
) -> dict[RegionId, TriggerVerdict]:
    """Judge every region of a plan made now.

    Costs one manifest and one listing for each region in which something waits.
    """
    now = table.clock.now()
    nothing = judge_triggers(WaitingGenerations(0, 0, None), triggers)

    def judge(share: RegionPlan) -> TriggerVerdict:
        if not share.take and not share.waiting and not share.verdict.needs_human:
            return nothing
        try:
            manifest = manifests.load(share.region_id)
        except (DamagedError, ObjectNotFoundError):
            return nothing  # The plan parks it, and says why.
        return judge_triggers(waiting_generations(table, manifest, share, now), triggers)

    judged = map_concurrently(judge, plan.regions, concurrency)
    return {share.region_id: verdict for share, verdict in zip(plan.regions, judged, strict=True)}


def waiting_generations(
    table: BaseTable, manifest: RegionManifest, share: RegionPlan, now: datetime
) -> WaitingGenerations:
    """Measure what waits in a region; ``share`` is the region's part of a merge planned now."""
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
