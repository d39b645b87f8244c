"""Regions that listings show to have no garbage. They are not read: what is deleted rests on manifests read today."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memwal_core.base_table import regions_at_rest
from memwal_core.errors import CorruptionError
from memwal_core.jobs.gc.contents import region_contents
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcRegionState, GcState, Resting
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.region import RegionManifest
from memwal_core.region.census import MANY_REGIONS
from memwal_core.region.listing import objects_of
from memwal_core.storage.protocol import ObjectInfo


def regions_without_garbage(surveyor: GcSurveyor, policy: Policy, regions: int) -> Resting:
    """Return the regions that are as the region snapshot says, and of which nothing is free; none where they are few.

    Costs two listings of everything below ``_mem_wal/``, whatever the number of regions.
    """
    try:
        rows = regions_at_rest(surveyor.table, surveyor.table.state()) if regions > MANY_REGIONS else {}
    except CorruptionError:
        rows = {}  # The survey meets it, too, and freezes the table.
    if not rows:
        return Resting()
    base = surveyor.base()
    objects = objects_of(surveyor.store, rows)
    states = [_state(row, objects[region_id]) for region_id, row in rows.items()]
    known = [each for each in states if not each.temporaries and _directories(each) == each.recorded]
    plan = plan_gc(GcState(surveyor.table.uri, base, tuple(known)), policy)
    read = {item.region_id for item in plan.free} | plan.freezes.regions.keys()
    return Resting(base, {each.region_id: each for each in known if each.region_id not in read})


def _directories(region: GcRegionState) -> frozenset[str]:
    return frozenset(each.name for each in region.directories)


def _state(row: RegionManifest, objects: Sequence[ObjectInfo]) -> GcRegionState:
    """Return what a row and a listing tell of a region, with everything unknown as if it freed what it may free."""
    recorded = {each.path for each in row.flushed_generations}
    contents = region_contents(row.region_id, objects, recorded)
    return replace(contents.state(row.region_id, row), settled_wal_id=row.replay_after_wal_id)
