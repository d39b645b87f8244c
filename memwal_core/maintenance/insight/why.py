"""Reading what ``why`` explains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance import gc
from memwal_core.maintenance.insight.explain import RegionAnswer, RegionCase, explain_region
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.ledger import Ledger
from memwal_core.maintenance.merge.due import waiting_generations
from memwal_core.maintenance.merge.plan import plan_merge
from memwal_core.maintenance.merge.survey import Surveyor
from memwal_core.maintenance.status import derive_status, find_wal_tail
from memwal_core.manifest import ManifestStore
from memwal_core.settings import Settings


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
        waiting=waiting_generations(parts.table, manifest, share, now),
        indexes=parts.table.indexes(state.version),
        pauses={key: parts.ledger.may_run(key) for key in parts.ledger.known_keys()},
        garbage=_garbage(parts, region_id, now),
        leases=[lease for key in parts.leases.known_keys() if (lease := parts.leases.read(key)) is not None],
    )
    return explain_region(case, parts.settings.merge_triggers)


def _garbage(parts: WhyParts, region_id: RegionId, now: datetime) -> gc.GcPlan | str:
    settings = parts.settings
    surveyor = gc.Surveyor(
        parts.table, parts.manifests, settings.storage.concurrency, with_references=settings.gc.collect_wal
    )
    try:
        policy = gc.Policy.of(settings, now)
    except InvalidRequestError as error:
        return f"refuses to act: {error.what}; {error.remedy}"
    return gc.plan_gc(surveyor.survey({region_id}), policy)
