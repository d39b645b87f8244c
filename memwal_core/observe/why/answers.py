"""Why each job did, or did not, act on one region. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from memwal_core.base_table import IndexFacts, TableState
from memwal_core.clock import unix_millis
from memwal_core.coordination.freeze import FreezeCause
from memwal_core.coordination.job_key import TABLE_SCOPE, JobKey
from memwal_core.coordination.lease import StoredLease
from memwal_core.coordination.ledger import RunVerdict
from memwal_core.format.memwal_index import MEM_WAL_INDEX_NAME
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.merge.decide.triggers import WaitingGenerations, judge_triggers
from memwal_core.jobs.merge.plan import RegionPlan
from memwal_core.jobs.snapshot.plan import SnapshotReason
from memwal_core.observe.status import RegionStanding
from memwal_core.observe.why.garbage import explain_garbage
from memwal_core.settings import MergeTriggerSettings
from memwal_core.text import show_count

MERGE, SNAPSHOT, CATCHUP, GC = "merge", "snapshot", "catchup", "gc"
_FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """One job's answer: whether it would act on the region now, why in one sentence, and the values behind that."""

    job: str
    acts: bool
    reason: str
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"job": self.job, "acts": self.acts, "reason": self.reason, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class FrozenFor:
    """One reason why no job acts on the table before a person decides, and the values that prove it."""

    cause: FreezeCause
    evidence: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"cause": self.cause.value, "evidence": dict(self.evidence), "runbook": self.cause.facts.runbook}


@dataclass(frozen=True, slots=True)
class RegionCase:
    """Everything the answers are drawn from.

    Attributes:
        state: The base version that was read after ``standing``.
        plan: The region's share of a merge planned now.
        pauses: Job -> whether its past allows it to run.
        garbage: What a collection of the region's garbage would do, or why it refuses to plan.
        snapshot: Whether the region alone makes a snapshot due, and why.
        freezes: What froze the table, or what the next run will freeze it for.
    """

    now: datetime
    standing: RegionStanding
    state: TableState
    plan: RegionPlan
    waiting: WaitingGenerations
    indexes: Sequence[IndexFacts]
    pauses: Mapping[JobKey, RunVerdict]
    leases: Sequence[StoredLease]
    garbage: GcPlan | str
    snapshot: SnapshotReason
    freezes: Sequence[FrozenFor] = ()


@dataclass(frozen=True, slots=True)
class RegionAnswer:
    """All jobs' answers about one region, in the order in which the jobs follow each other."""

    region_id: RegionId
    verdicts: tuple[JobVerdict, ...]

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"region_id": str(self.region_id), "verdicts": [verdict.to_dict() for verdict in self.verdicts]}


def explain_region(case: RegionCase, triggers: MergeTriggerSettings) -> RegionAnswer:
    """Tell for each job whether it would act on a region now, and why."""
    verdicts = (_flush(case), _merge(case, triggers), *_catchup(case), _gc(case), _snapshot(case))
    return RegionAnswer(
        case.standing.region_id, tuple(_frozen(case, _held_back(case, verdict)) for verdict in verdicts)
    )


def _flush(case: RegionCase) -> JobVerdict:
    lag = case.standing.wal_lag
    facts = {"wal_lag": lag, "writer_epoch": case.standing.writer_epoch}
    if not lag:
        return JobVerdict(_FLUSH, False, "every WAL entry is flushed", facts)
    return JobVerdict(
        _FLUSH,
        False,
        f"waiting: {show_count(lag, 'WAL entry')}; the writer flushes, or `memwal flush` if it is gone",
        facts,
    )


def _merge(case: RegionCase, triggers: MergeTriggerSettings) -> JobVerdict:
    plan, verdict = case.plan, judge_triggers(case.waiting, triggers)
    facts = {**verdict.to_dict(), "merged": plan.merged, "plan": plan.verdict.value, "evidence": plan.evidence}
    if plan.verdict.needs_human and not plan.take:
        return JobVerdict(MERGE, False, f"{plan.verdict.value}: {plan.evidence}", facts)
    if plan.verdict.needs_human:
        reason = f"{verdict.reason}; it would end at: {plan.verdict.value}: {plan.evidence}"
        return JobVerdict(MERGE, verdict.due, reason, facts)
    return JobVerdict(MERGE, verdict.due, verdict.reason, facts)


def _catchup(case: RegionCase) -> Iterator[JobVerdict]:
    details = case.state.require_details()
    merged = case.standing.merged_generation
    named = {index.name: index for index in case.indexes if index.name != MEM_WAL_INDEX_NAME}
    for name, index in sorted(named.items()):
        if not index.is_trained:
            reason = f"index {name} is not trained yet: the table had too few vectors, and queries scan them"
            yield JobVerdict(CATCHUP, False, reason, {"index": name, "merged": merged})
            continue
        covered = details.index_catchup.get(name, {}).get(case.standing.region_id, 0)
        facts = {"index": name, "covered": covered, "merged": merged}
        if covered >= merged:
            reason = f"index {name} covers everything that is merged"
        else:
            reason = f"index {name} covers generation {covered} of {merged} merged ones"
        yield JobVerdict(CATCHUP, covered < merged, reason, facts)


def _gc(case: RegionCase) -> JobVerdict:
    details, region_id = case.state.require_details(), case.standing.region_id
    facts: dict[str, object] = {
        "merged": case.standing.merged_generation,
        "index_catchup": {name: entry.get(region_id, 0) for name, entry in sorted(details.index_catchup.items())},
    }
    if isinstance(case.garbage, str):
        return JobVerdict(GC, False, case.garbage, facts)
    acts, reason, found = explain_garbage(case.garbage, region_id)
    return JobVerdict(GC, acts, reason, {**facts, **found})


def _snapshot(case: RegionCase) -> JobVerdict:
    details = case.state.require_details()
    taken = details.snapshot_ts_millis
    age_s = (unix_millis(case.now) - taken) / 1000 if taken else None
    facts = {"snapshot_age_s": age_s, "regions_in_snapshot": details.num_regions}
    seen = "readers list the regions" if age_s is None else f"the snapshot is {age_s:.0f} s old"
    return JobVerdict(SNAPSHOT, case.snapshot.publishes, f"{seen}: {case.snapshot.value}", facts)


def _frozen(case: RegionCase, verdict: JobVerdict) -> JobVerdict:
    """Replace what a job would do while it may do nothing."""
    if not case.freezes:
        return verdict
    reason = "; ".join(dict.fromkeys(each.cause.facts.summary for each in case.freezes))
    facts = {**verdict.facts, "frozen": [each.to_dict() for each in case.freezes]}
    return JobVerdict(verdict.job, acts=False, reason=f"frozen: {reason}", facts=facts)


def _held_back(case: RegionCase, verdict: JobVerdict) -> JobVerdict:
    """Add what keeps a job from running at all: a pause after failures, or a lease that another process holds."""
    reasons = []
    scopes = {TABLE_SCOPE, str(case.standing.region_id)}
    for key, pause in case.pauses.items():
        if key.job == verdict.job and key.scope in scopes and not pause.allowed:
            reasons.append(f"paused: {pause.reason}")
    for lease in case.leases:
        document = lease.document
        if lease.key.job == verdict.job and lease.key.scope in scopes and case.now < document.expires_at:
            reasons.append(f"{document.holder} holds its lease until {document.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    if not reasons:
        return verdict
    paused = any(reason.startswith("paused") for reason in reasons)
    reason = "; ".join([verdict.reason, *reasons])
    return JobVerdict(verdict.job, verdict.acts and not paused, reason, {**verdict.facts, "held_back": reasons})
