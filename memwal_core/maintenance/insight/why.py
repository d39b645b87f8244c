"""Reading what ``why`` explains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.errors import ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance.insight.explain import RegionAnswer, RegionCase, explain_region
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.ledger import Ledger
from memwal_core.maintenance.merge.plan import RegionPlan, plan_merge
from memwal_core.maintenance.merge.survey import Surveyor
from memwal_core.maintenance.merge.triggers import WaitingGenerations
from memwal_core.maintenance.status import derive_status, find_wal_tail
from memwal_core.manifest import ManifestStore, RegionManifest
from memwal_core.settings import Settings
from memwal_core.storage.layout import generation_path


@dataclass(frozen=True, slots=True)
class WhyParts:
    """What a question is answered with.

    Attributes:
        table: The base table.
        manifests: Its region manifests.
        surveyor: Reads what a merge would.
        ledger: Job histories.
        leases: Leases.
        settings: Triggers and bounds.
    """

    table: BaseTable
    manifests: ManifestStore
    surveyor: Surveyor
    ledger: Ledger
    leases: LeaseStore
    settings: Settings


def why(parts: WhyParts, region_id: RegionId) -> RegionAnswer:
    """Tell for each job whether it would act on a region now, and why.

    Args:
        parts: What to read with.
        region_id: The region.

    Raises:
        ObjectNotFoundError: There is no such region.
        InvalidRequestError: The table has no MemWAL index, or no usable primary key.
        UnavailableError: Storage failed.
        CorruptionError: A manifest contradicts itself. Ask `memwal doctor`.
    """
    manifest = parts.manifests.load(region_id)
    survey, state = parts.surveyor.survey({region_id})
    if all(region.region_id != region_id for region in survey.regions):
        raise ObjectNotFoundError(
            "there is no such region", remedy="`memwal status` shows the regions", region_id=str(region_id)
        )
    plan = plan_merge(survey, parts.settings.merge, regions={region_id})
    share = next(each for each in plan.regions if each.region_id == region_id)
    tail = find_wal_tail(parts.table.store, manifest)
    status = derive_status(parts.table.uri, state, [manifest], [tail])
    now = parts.table.clock.now()
    case = RegionCase(
        now=now,
        standing=status.regions[0],
        state=state,
        plan=share,
        waiting=_waiting(parts.table, manifest, share, now),
        indexes=parts.table.indexes(state.version),
        pauses={key: parts.ledger.may_run(key) for key in parts.ledger.known_keys()},
        leases=[lease for key in parts.leases.known_keys() if (lease := parts.leases.read(key)) is not None],
    )
    return explain_region(case, parts.settings.merge_triggers)


def _waiting(table: BaseTable, manifest: RegionManifest, share: RegionPlan, now: datetime) -> WaitingGenerations:
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
