"""Read what ``why`` explains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.coordination.lease import LeaseStore
from memwal_core.coordination.ledger import Ledger
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.plan import GcPlan, plan_gc
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.merge.decide.due import waiting_generations
from memwal_core.jobs.merge.plan import plan_merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.observe.status import derive_status, find_wal_tail
from memwal_core.observe.why.answers import RegionAnswer, RegionCase, explain_region
from memwal_core.region import ManifestStore
from memwal_core.settings import Settings


@dataclass(frozen=True, slots=True)
class WhyContext:
    """What a question is answered with; ``surveyor`` reads what a merge would."""

    table: BaseTable
    manifests: ManifestStore
    surveyor: MergeSurveyor
    ledger: Ledger
    leases: LeaseStore
    settings: Settings


def why(context: WhyContext, region_id: RegionId) -> RegionAnswer:
    """Tell for each job whether it would act on a region now, and why; ``ObjectNotFoundError`` if it is unknown."""
    manifest = context.manifests.load(region_id)
    survey, state = context.surveyor.survey({region_id})
    if all(region.region_id != region_id for region in survey.regions):
        raise ObjectNotFoundError(
            "the table has no such region", remedy="choose a region from `memwal status`", region_id=str(region_id)
        )
    plan = plan_merge(survey, context.settings.merge, regions={region_id})
    share = next(each for each in plan.regions if each.region_id == region_id)
    tail = find_wal_tail(context.table.store, manifest)
    status = derive_status(context.table.uri, state, [manifest], [tail])
    now = context.table.clock.now()
    case = RegionCase(
        now=now,
        standing=status.regions[0],
        state=state,
        plan=share,
        waiting=waiting_generations(context.table, manifest, share, now),
        indexes=context.table.indexes(state.version),
        pauses={key: context.ledger.may_run(key) for key in context.ledger.known_keys()},
        garbage=_garbage(context, region_id, now),
        leases=[lease for key in context.leases.known_keys() if (lease := context.leases.read(key)) is not None],
    )
    return explain_region(case, context.settings.merge_triggers)


def _garbage(context: WhyContext, region_id: RegionId, now: datetime) -> GcPlan | str:
    settings = context.settings
    surveyor = GcSurveyor(
        context.table, context.manifests, settings.storage.concurrency, collect_wal=settings.gc.collect_wal
    )
    try:
        policy = Policy.of(settings, now)
    except InvalidRequestError as error:
        return f"refuses to act: {error.what}; {error.remedy}"
    return plan_gc(surveyor.survey({region_id}), policy)
