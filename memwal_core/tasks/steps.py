"""Catch-up, snapshot, compaction and garbage collection as tasks: plan, then work under a lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import TypedDict

from memwal_core.admin import CatchupRequest, CompactRequest, GcRequest, SnapshotRequest, TableAdmin
from memwal_core.cli.options import show_bytes
from memwal_core.errors import ConflictError, CorruptionError, InternalError, InvalidRequestError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.maintenance.catchup import CatchupReport
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseTicket, parse_ticket
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.recording import StepReport, recorded, step_facts
from memwal_core.tasks.leases import give_back, take
from memwal_core.tasks.targets import Target, choose_targets, open_target

_log = logging.getLogger(__name__)

_RUNBOOKS: Mapping[str, str] = MappingProxyType(
    {
        "catchup": "docs/runbooks/index-lag.md",
        "compact": "docs/runbooks/base-fragments.md",
        "gc": "docs/runbooks/progress-lost.md",
        "snapshot": "docs/runbooks/snapshot-age.md",
    }
)
"""Where to go on when a job says that it needs a person."""


class WorkItem(TypedDict):
    """One piece of work, as tasks hand it to each other.

    Attributes:
        label: For people.
        job: Which job.
        index: The index that is caught up; empty for the other jobs.
        target: The table.
        params: Of the run, as the form gave them.
        ticket: The lease it works under; empty until it is taken.
    """

    label: str
    job: str
    index: str
    target: Target
    params: dict[str, object]
    ticket: str


class StepResult(TypedDict):
    """What a piece of work did; also what the asset event of the table says.

    Attributes:
        table: Name of the table.
        uri: Its address.
        connection: Its storage connection; empty = none.
        job: Which job.
        outcome: How it ended.
        version: Newest table version seen; 0 = unknown.
        facts: What is remembered of it.
        due_at: When the rest may be done, ISO 8601 with timezone; empty if nothing waits. Only garbage collection
            waits, for the grace period of what it drained.
    """

    table: str
    uri: str
    connection: str
    job: str
    outcome: str
    version: int
    facts: dict[str, object]
    due_at: str


def plan_step(job: str, params: Mapping[str, object], events: Iterable[Mapping[str, object]] = ()) -> list[WorkItem]:
    """Plan a job on the tables of a run and log why it does, or does not, act.

    Args:
        job: One of ``catchup``, ``snapshot``, ``compact``, ``gc``.
        params: Of the run, as the form gives them.
        events: What earlier jobs said about tables that they changed.

    Returns:
        The work, one piece per table or, for catch-up, per index; empty on a dry run or if there is nothing to do.

    Raises:
        InvalidRequestError: Parameters do not fit, or a table is not registered.
        CorruptionError: Something needs a person before anything can be done.
        UnavailableError: Storage failed; try again.
    """
    items = []
    for target in choose_targets(params, events):
        items += [
            WorkItem(label=label, job=job, index=index, target=target, params=dict(params), ticket="")
            for label, index in _PLANNERS[job](open_target(target), target, params)
        ]
    if not items:
        _log.info("nothing to do")
    elif params.get("dry_run"):
        _log.info("dry run: nothing is changed")
        return []
    return items


def hold_leases(items: Sequence[WorkItem], holder: str) -> list[WorkItem]:
    """Take the lease of each piece of work for the run; all or none.

    Args:
        items: The work.
        holder: The run's id.

    Returns:
        The work with its tickets.

    Raises:
        ConflictError: Another run has one of the leases. None is kept; try again later.
        UnavailableError: Storage failed. Try again.
    """
    held: list[WorkItem] = []
    with ExitStack() as undo:
        undo.callback(lambda: release_leases(held))
        for item in items:
            ticket = take(item["target"], key_of(item), holder)
            held.append({**item, "ticket": ticket})
        undo.pop_all()
    return held


def release_leases(items: Sequence[WorkItem]) -> list[str]:
    """Give the leases of a run back; one that was lost, or that cannot be given back, is left alone.

    Returns:
        The tickets that were given back.
    """
    return list(give_back((item["target"], item["ticket"]) for item in items if item["ticket"]))


def run_step(item: WorkItem, holder: str) -> StepResult:
    """Do a piece of work under its lease, and record it in the table's ledger.

    Args:
        item: The work; without a ticket it takes its own lease and gives it back.
        holder: The run's id.

    Raises:
        FencedError: Another run has the lease now. Do not try again: the other run does the work.
        ConflictError: Somebody else changed the table, or storage did not answer. Try again.
        CorruptionError: Something needs a person.
        InvalidRequestError: The parameters do not fit the table.
        UnavailableError: Storage failed. Try again.
    """
    admin = open_target(item["target"])
    ticket = parse_ticket(item["ticket"]) if item["ticket"] else None
    key = key_of(item)
    report: StepReport = recorded(
        admin.insight,
        key,
        holder,
        lambda: _RUNNERS[item["job"]](admin, item, holder, ticket),
        ticket=ticket,
        facts=step_facts,
    )
    reason = str(getattr(report, "reason", "") or "")
    _log.info("%s ended [outcome=%s, seconds=%.1f] %s", item["label"], report.outcome.value, report.seconds, reason)
    _require_success(item, report, reason)
    facts = step_facts(report)
    version = facts.get("version")
    due_at = report.due_at if isinstance(report, GcReport) else None
    return StepResult(
        table=item["target"]["name"],
        uri=item["target"]["uri"],
        connection=item["target"]["connection"],
        job=item["job"],
        outcome=report.outcome.value,
        version=version if isinstance(version, int) else 0,
        facts=facts,
        due_at=due_at.isoformat() if due_at is not None else "",
    )


def finish_step(item: WorkItem, holder: str, begun: StepResult) -> StepResult:
    """Do the rest of a piece of work that had to wait, under the same lease.

    Args:
        item: The work.
        holder: The run's id.
        begun: What was done before.

    Returns:
        Both together. What the second half drained itself is left to a later run.

    Raises:
        MemwalError: As ``run_step``.
    """
    rest = run_step(item, holder)
    if rest["outcome"] == JobOutcome.NOTHING_TO_DO.value:
        return {**begun, "due_at": ""}
    return {**rest, "facts": {**rest["facts"], "before_waiting": begun["facts"]}, "due_at": ""}


def verify_steps(items: Sequence[WorkItem], results: Iterable[StepResult]) -> str:
    """Read the tables of a run anew: nothing stands in the way of its job, and what was caught up is.

    Args:
        items: The work.
        results: Of the pieces that changed something.

    Returns:
        For people: what is due again, because somebody changed the table meanwhile or a bound ended the work.

    Raises:
        CorruptionError: Something needs a person now. Start no further job of this table.
        InternalError: An index is behind, and nobody has changed the table since it was extended.
        UnavailableError: Storage failed; try again.
    """
    versions: dict[str, int] = {}
    for result in results:
        versions[result["uri"]] = max(versions.get(result["uri"], 0), result["version"])
    found = []
    for item in {each["target"]["uri"]: each for each in items}.values():
        target, admin = item["target"], open_target(item["target"])
        due = _PLANNERS[item["job"]](admin, target, item["params"])
        if due and item["job"] == "catchup" and admin.table.state().version == versions.get(target["uri"]):
            raise InternalError(
                "indexes are behind although nobody has changed the table since they were extended",
                remedy=f"report this, and follow {_RUNBOOKS['catchup']}",
                table=target["name"],
                indexes=[index for _, index in due],
                version=versions[target["uri"]],
            )
        found.append(f"{target['name']}: {f'{len(due)} due again' if due else 'nothing is due'}")
    _log.info("%s", "; ".join(found))
    return "; ".join(found)


def key_of(item: WorkItem) -> JobKey:
    """Return what a piece of work leases: an index for catch-up, else the job of the table."""
    return JobKey.of_index(item["job"], item["index"]) if item["index"] else JobKey(item["job"])


def _require_success(item: WorkItem, report: StepReport, reason: str) -> None:
    if report.outcome is JobOutcome.CONFLICT:
        raise ConflictError(
            f"{item['label']} ended with a conflict",
            remedy="let it try again; what was done stands",
            table=item["target"]["name"],
            reason=reason,
        )
    if report.outcome is JobOutcome.BLOCKED:
        raise CorruptionError(
            f"{item['label']} needs a person",
            remedy=f"read the log above, and follow {_RUNBOOKS[item['job']]}",
            table=item["target"]["name"],
            reason=reason or _blocked_by(report),
        )


def _blocked_by(report: StepReport) -> str:
    if isinstance(report, GcReport):
        frozen = report.plan.freezes
        return frozen.table or "; ".join(sorted(set(frozen.regions.values())))
    if isinstance(report, CatchupReport):
        return "; ".join(f"{index.name}: {index.reason}" for index in report.indexes if index.reason)
    return ""


def _plan_catchup(admin: TableAdmin, target: Target, params: Mapping[str, object]) -> list[tuple[str, str]]:
    request = CatchupRequest(indexes=_names(params, "indexes"), merge_segments=_flag(params, "merge_segments"))
    report = admin.catch_up(CatchupRequest(request.indexes, merge_segments=request.merge_segments, dry_run=True))
    for index in report.plan.indexes:
        _log.info("%s: index %s: %s", target["name"], index.name, index.verdict.value)
    missing = sorted(index.name for index in report.plan.indexes if index.verdict.needs_human)
    due = sorted({*(index.name for index in report.plan.to_extend), *report.plan.to_record})
    if missing and not due:
        raise CorruptionError(
            "an index that MemTables maintain does not exist",
            remedy=f"build it, or take it out of the maintained indexes; {_RUNBOOKS['catchup']} has the steps",
            table=target["name"],
            indexes=missing,
        )
    return [(f"{target['name']}: {name}", name) for name in due]


def _plan_snapshot(admin: TableAdmin, target: Target, params: Mapping[str, object]) -> list[tuple[str, str]]:
    plan = admin.build_snapshot(SnapshotRequest(force=_flag(params, "force"), dry_run=True)).plan
    _log.info("%s: %s [regions=%d, changed=%d]", target["name"], plan.reason.value, plan.regions, len(plan.changed))
    return [(target["name"], "")] if plan.is_due else []


def _plan_compact(admin: TableAdmin, target: Target, params: Mapping[str, object]) -> list[tuple[str, str]]:
    remove = _flag(params, "remove_versions")
    report = admin.compact(CompactRequest(force=_flag(params, "force"), remove_versions=remove, dry_run=True))
    plan = report.plan
    _log.info("%s: %s [fragments=%d, takes=%d]", target["name"], plan.verdict.value, plan.fragments, len(plan.take))
    return [(target["name"], "")] if plan.take or remove else []


def _plan_gc(admin: TableAdmin, target: Target, params: Mapping[str, object]) -> list[tuple[str, str]]:
    report = admin.collect_garbage(GcRequest(regions=_regions(params), dry_run=True))
    for kind, tally in report.plan.free_by_kind().items():
        _log.info("%s: would free %d %s, %s", target["name"], tally.items, kind.value, show_bytes(tally.size_bytes))
    for kind, gates in report.plan.held_by_gate().items():
        for gate, tally in gates.items():
            _log.info("%s: keeps %d %s: %s", target["name"], tally.items, kind.value, gate)
    if report.outcome is JobOutcome.BLOCKED and not report.plan.free:
        raise CorruptionError(
            "nothing is deleted before somebody has looked at this table",
            remedy=f"follow {_RUNBOOKS['gc']}",
            table=target["name"],
            reason=_blocked_by(report),
        )
    waits = _flag(params, "wait") and report.due_at is not None
    return [(target["name"], "")] if report.plan.free or waits else []


def _run_catchup(admin: TableAdmin, item: WorkItem, holder: str, ticket: LeaseTicket | None) -> StepReport:
    indexes = {item["index"]} if item["index"] else None
    merge_segments = _flag(item["params"], "merge_segments")
    return admin.catch_up(CatchupRequest(indexes, merge_segments=merge_segments, holder=holder, ticket=ticket))


def _run_snapshot(admin: TableAdmin, item: WorkItem, holder: str, ticket: LeaseTicket | None) -> StepReport:
    return admin.build_snapshot(SnapshotRequest(force=_flag(item["params"], "force"), holder=holder, ticket=ticket))


def _run_compact(admin: TableAdmin, item: WorkItem, holder: str, ticket: LeaseTicket | None) -> StepReport:
    force, remove = _flag(item["params"], "force"), _flag(item["params"], "remove_versions")
    return admin.compact(CompactRequest(force=force, remove_versions=remove, holder=holder, ticket=ticket))


def _run_gc(admin: TableAdmin, item: WorkItem, holder: str, ticket: LeaseTicket | None) -> StepReport:
    dry_run = _flag(item["params"], "dry_run")
    request = GcRequest(regions=_regions(item["params"]), dry_run=dry_run, holder=holder, ticket=ticket)
    return admin.collect_garbage(request)


_PLANNERS: Mapping[str, Callable[[TableAdmin, Target, Mapping[str, object]], list[tuple[str, str]]]] = MappingProxyType(
    {"catchup": _plan_catchup, "snapshot": _plan_snapshot, "compact": _plan_compact, "gc": _plan_gc}
)
_RUNNERS: Mapping[str, Callable[[TableAdmin, WorkItem, str, LeaseTicket | None], StepReport]] = MappingProxyType(
    {"catchup": _run_catchup, "snapshot": _run_snapshot, "compact": _run_compact, "gc": _run_gc}
)


def _flag(params: Mapping[str, object], name: str) -> bool:
    return bool(params.get(name))


def _names(params: Mapping[str, object], name: str) -> set[str] | None:
    given = params.get(name) or ()
    if not isinstance(given, list | tuple):
        if not given:
            return None
        raise InvalidRequestError("this must be a list", remedy="correct the parameters", parameter=name)
    return {str(each) for each in given} or None


def _regions(params: Mapping[str, object]) -> set[RegionId] | None:
    named = _names(params, "regions")
    return {parse_region_id(name) for name in named} if named else None
