"""Which regions are due for a merge: what waits in each, and the verdict on every trigger."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.base_table.keys.choose_search import forecast_scan
from memwal_core.errors import (
    CorruptionError,
    DamagedError,
    InvalidRequestError,
    ObjectNotFoundError,
    StoreRefusedError,
)
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.triggers import (
    SearchWork,
    TriggerVerdict,
    WaitingGenerations,
    due_by_number_alone,
    judge_triggers,
)
from memwal_core.jobs.merge.plan import MergePlan, RegionPlan
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.settings import MergeTriggerSettings
from memwal_core.storage.concurrent import map_concurrently


def judge_regions(
    table: BaseTable, manifests: ManifestStore, plan: MergePlan, triggers: MergeTriggerSettings, concurrency: int
) -> dict[RegionId, TriggerVerdict]:
    """Judge every region of a plan made now.

    Costs one manifest and one listing for each region in which something waits, and a look at a few data files if only
    the number of generations makes a region due.
    """
    now = table.clock.now()
    nothing = WaitingGenerations(0, 0, None)

    def measure(share: RegionPlan) -> WaitingGenerations:
        if not share.take and not share.waiting and not share.verdict.needs_human:
            return nothing
        try:
            manifest = manifests.load(share.region_id)
        except (DamagedError, ObjectNotFoundError):
            return nothing  # The plan parks it, and says why.
        return waiting_generations(table, manifest, share, now)

    waiting = map_concurrently(measure, plan.regions, concurrency)
    verdicts = [judge_triggers(each, triggers) for each in waiting]
    if any(map(due_by_number_alone, verdicts)):
        search = search_work(table, plan.version, sum(1 for each in waiting if each.generations))
        verdicts = [judge_triggers(replace(each, search=search), triggers) for each in waiting]
    return {share.region_id: verdict for share, verdict in zip(plan.regions, verdicts, strict=True)}


def search_work(table: BaseTable, version: int, regions: int) -> SearchWork | None:
    """Forecast what the search of a merge reads; None if an index makes it follow the keys, or if there is no key.

    Costs a look at a few data files.
    """
    try:
        scan = forecast_scan(table, table.dataset(version))
    except (CorruptionError, StoreRefusedError, InvalidRequestError):
        return None  # The merge itself says what is wrong.
    return SearchWork(scan.read_bytes, regions) if scan is not None else None


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
