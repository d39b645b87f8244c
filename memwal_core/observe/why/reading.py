"""Read what ``why`` explains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import FreezeStore
from memwal_core.coordination.freeze.watch import contradictions
from memwal_core.coordination.lease import LeaseStore
from memwal_core.coordination.ledger import Ledger
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.plan import GcPlan, plan_gc
from memwal_core.jobs.gc.policy import Policy, settled_s
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.merge.decide.due import search_work, waiting_generations
from memwal_core.jobs.merge.decide.triggers import due_by_number_alone, judge_triggers
from memwal_core.jobs.merge.plan import plan_merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.observe.region_values import values_by_rows
from memwal_core.observe.status import derive_status, find_wal_tail
from memwal_core.observe.why.answers import FrozenFor, RegionAnswer, RegionCase, explain_region
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
    freezes: FreezeStore
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
    values = values_by_rows(
        context.table.store, state.require_details().region_specs, [manifest], [tail.wal_id], concurrency=1
    )
    status = derive_status(context.table.uri, state, [manifest], [tail], values=values)
    now = context.table.clock.now()
    waiting = waiting_generations(context.table, manifest, share, now)
    if due_by_number_alone(judge_triggers(waiting, context.settings.merge_triggers)):
        waiting_regions = sum(1 for each in survey.regions if each.current_generation - 1 > each.merged)
        waiting = replace(waiting, search=search_work(context.table, state.version, waiting_regions))
    case = RegionCase(
        now=now,
        standing=status.regions[0],
        state=state,
        plan=share,
        waiting=waiting,
        indexes=context.table.indexes(state.version),
        pauses={key: context.ledger.may_run(key) for key in context.ledger.known_keys()},
        garbage=_garbage(context, region_id, now),
        freezes=_freezes(context, region_id),
        leases=[lease for key in context.leases.known_keys() if (lease := context.leases.read(key)) is not None],
    )
    return explain_region(case, context.settings.merge_triggers)


def _freezes(context: WhyContext, region_id: RegionId) -> list[FrozenFor]:
    """Return what froze the table, or what the next run of a job will freeze it for."""
    record = context.freezes.load()
    if record is not None and record.active:
        return [FrozenFor(each.cause, each.evidence) for each in record.active]
    memory = record.memory if record is not None else None
    found = contradictions(context.table, context.manifests, memory, {region_id})
    return [FrozenFor(each.cause, each.evidence) for each in found]


def _garbage(context: WhyContext, region_id: RegionId, now: datetime) -> GcPlan | str:
    settings = context.settings
    surveyor = GcSurveyor(
        context.table,
        context.manifests,
        settings.storage.concurrency,
        settings.gc.collect_wal,
        now - timedelta(seconds=settled_s(settings)),
    )
    try:
        policy = Policy.of(settings, now)
    except InvalidRequestError as error:
        return f"refuses to act: {error.what}; {error.remedy}"
    return plan_gc(surveyor.survey({region_id}), policy)
