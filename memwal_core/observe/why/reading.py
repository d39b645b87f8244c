"""Read what ``why`` explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memwal_core.base_table import BaseTable, TableState, read_snapshot
from memwal_core.coordination.freeze import Contradiction, Freeze, FreezeScope, FreezeStore
from memwal_core.coordination.freeze.watch import contradictions
from memwal_core.coordination.lease import LeaseStore
from memwal_core.coordination.ledger import Ledger
from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.memwal_index.rules import is_inline
from memwal_core.format.memwal_index.snapshot import build_snapshot, snapshot_manifests
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.plan import GcPlan, plan_gc
from memwal_core.jobs.gc.policy import Policy, settled_s
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.merge.decide.due import search_work, waiting_generations
from memwal_core.jobs.merge.decide.triggers import due_by_number_alone, judge_triggers
from memwal_core.jobs.merge.plan import plan_merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.snapshot.plan import SnapshotReason, SnapshotRegion, SnapshotSurvey, plan_snapshot
from memwal_core.jobs.snapshot.survey import observed_tail
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
        snapshot=_snapshot(context, state, SnapshotRegion(manifest, observed_tail(context.table.store, manifest)), now),
        freezes=_freezes(context, region_id),
        leases=[lease for key in context.leases.known_keys() if (lease := context.leases.read(key)) is not None],
    )
    return explain_region(case, context.settings.merge_triggers)


def _freezes(context: WhyContext, region_id: RegionId) -> list[FrozenFor]:
    """Return what froze the table or the region, or what the next run of a job will freeze them for."""
    record = context.freezes.load()
    active = record.active if record is not None else ()
    found: Sequence[Freeze | Contradiction] = active
    if not any(each.stops_table for each in active):
        memory = record.memory if record is not None else None
        new = contradictions(context.table, context.manifests, memory, {region_id})
        known = {each.subject for each in active}
        found = [*active, *(each for each in new if (each.cause, each.region_id) not in known)]
    return [
        FrozenFor(each.cause, each.evidence)
        for each in found
        if each.cause.facts.scope is FreezeScope.TABLE or each.region_id == region_id
    ]


def _snapshot(context: WhyContext, state: TableState, region: SnapshotRegion, now: datetime) -> SnapshotReason:
    """Plan a snapshot as if the table had no other region."""
    settings, details = context.settings.index, state.require_details()
    try:
        stored = read_snapshot(context.table, state)
    except CorruptionError:
        stored = None  # It holds nothing that anybody can use.
    if stored is not None:
        own = [row for row in snapshot_manifests(stored) if row.region_id == region.manifest.region_id]
        stored = build_snapshot(own, details.region_specs)
    survey = SnapshotSurvey(
        table_uri=context.table.uri,
        version=state.version,
        taken=now,
        regions=(region,),
        specs=details.region_specs,
        stored=stored,
        stored_inline=is_inline(1, threshold=settings.inline_snapshot_threshold),
        stored_ts_millis=details.snapshot_ts_millis,
        stored_regions=details.num_regions,
    )
    return plan_snapshot(survey, settings).reason


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
