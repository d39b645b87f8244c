"""A job as tasks: plan it, lease it, do a piece of it, verify the whole. The same for every job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypedDict, get_origin, get_type_hints, is_typeddict

from memwal_core.airflow.defaults import most_mapped
from memwal_core.airflow.failures import reason_to_give_up
from memwal_core.airflow.tasks.leases import give_back, take
from memwal_core.airflow.tasks.tables import find_table, named_tables, open_table
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import parse_ticket
from memwal_core.errors import InvalidRequestError, MemwalError
from memwal_core.jobs.catalog import parse_request, request_type
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.job import JobReport, Piece
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityGate
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.runner import load_job
from memwal_core.jobs.sharing.dispatch import Dispatch, dispatch, dispatch_plan
from memwal_core.jobs.thaw.report import explain
from memwal_core.registry import RegisteredTable, admit, require_registry
from memwal_core.registry.admit import granted_fields

_log = logging.getLogger(__name__)
_LONGEST_SHOWN = 200


class WorkItem(TypedDict):
    """One piece of work, as tasks hand it to each other. Holds names only; each task asks the registry for the rest.

    Attributes:
        table: Name of the table; the address of one without an entry.
        request: Values of its request, as the run asked for them.
        promise: What the verification finds true afterwards.
        ticket: The lease it works under; empty until it is taken, or if the job takes none.
        to_spark: Whether it becomes a Spark application; else a worker does it.
        planned: Whether a worker has planned it; else the application does, as it begins.
    """

    label: str
    table: str
    job: str
    request: dict[str, Any]
    promise: dict[str, Any]
    ticket: str
    to_spark: bool
    where: str
    planned: bool


class WorkResult(TypedDict):
    """What a piece of work did.

    Attributes:
        facts: What is remembered of it.
        due_at: When the rest may be done, ISO 8601 with timezone; empty if nothing waits. Only garbage collection
            waits, for the grace period of what it drained.
    """

    table: str
    uri: str
    job: str
    outcome: str
    facts: dict[str, Any]
    due_at: str


class TableChange(TypedDict):
    """What the event of an asset says about one table that changed."""

    table: str
    uri: str
    summary: str
    facts: dict[str, Any]


class WantedLease(TypedDict):
    """One lease that a run wants: the name of the table, and job and scope of its key."""

    table: str
    job: str
    scope: str


def plan_work(
    job: str,
    params: Mapping[str, object],
    events: Iterable[Mapping[str, object]] = (),
    run_id: str = "",
    *,
    left_out: Callable[[str, MemwalError], None] | None = None,
    is_last: bool = False,
) -> list[WorkItem]:
    """Plan a job on the tables of a run, and log why it does, or does not, act. Changes nothing.

    Args:
        job: Its name.
        params: Of the run, as the form gives them.
        events: What earlier jobs said about tables that they changed.
        run_id: The same whenever the run is cleared or repeated.
        left_out: Told of each table that changed and cannot be planned, which no retry mends, while there is work of
            others; without it, such a table ends the run of all.
        is_last: Whether there is no further attempt, so that what a retry might mend is left out as well.

    Returns:
        The work; empty on a dry run, or if nothing is due. What is too large to be planned here is work in any case,
        also where it ``only_plans``. Not more than Airflow makes tasks of: the rest is due again.

    Raises:
        InvalidRequestError: Parameters do not fit, or a table is not registered.
        CorruptionError: A person must act before anything can be done.
    """
    kind = request_type(job)
    given = {name: params[name] for name in kind.model_fields if params.get(name) is not None}
    asked = parse_request(job, given).for_run(run_id)
    planned: dict[str, list[WorkItem]] = {}
    problems: dict[str, MemwalError] = {}
    for name in named_tables(params, events):
        try:
            table = find_table(name)
            planned[table.uri] = planned.get(table.uri) or _planned(table, asked)
        except MemwalError as error:
            if left_out is None or not (is_last or reason_to_give_up(error)):
                raise
            problems[name] = error
    items = [item for each in planned.values() for item in each]
    for name, problem in problems.items():
        if left_out is None or not items:
            raise problem
        left_out(name, problem)
    if len(items) > (most := most_mapped()):
        _log.warning(
            "%d pieces of work are more than Airflow maps at once: the first %d are done, and the rest by later runs; "
            "raise core.max_map_length, or ask for larger pieces",
            len(items),
            most,
        )
    return items[:most]


def only_plans(item: WorkItem) -> bool:
    """Return whether a piece of work is a plan that is made elsewhere: it takes no lease, and changes nothing."""
    request = request_of(item)
    return request.dry_run and not request.info.dry_run_is_work


def plans_elsewhere(items: Iterable[WorkItem], *, shown: bool) -> list[WorkItem]:
    """Return the plans that applications make before any work is done.

    Args:
        items: What ``plan_work`` returned.
        shown: Also plans of work that a person has to agree to.
    """
    unplanned = [item for item in items if not item["planned"] and (shown or only_plans(item))]
    return [{**item, "request": {**item["request"], "dry_run": True}} for item in unplanned]


def _admitted(table: RegisteredTable, asked: JobRequest) -> JobRequest:
    if isinstance(asked, IngestRequest):
        asked = asked.model_copy(update={"suites": tuple(dict.fromkeys((*table.input_suites, *asked.suites)))})
    if isinstance(asked, MergeRequest) and table.checks is QualityGate.MANDATORY:
        # The gate of the table's cycle holds by hand and after a change, too.
        suites = tuple(dict.fromkeys((*table.suites, *asked.suites)))
        asked = asked.model_copy(update={"audited_only": True, "suites": suites})
    return admit(asked, table, require_registry())


def _planned(table: RegisteredTable, asked: JobRequest) -> list[WorkItem]:
    opened, request = open_table(table).opened, _admitted(table, asked)
    if is_frozen(opened, request):
        return []
    job, context = load_job(request), JobContext(opened)
    elsewhere = dispatch_plan(job.planning(context, request), opened.settings.dispatch)
    if elsewhere is not None:
        item: WorkItem = {**_item(table, Piece(table.uri, request), asked, elsewhere), "planned": False}
        _log.info("%s, %s", item["label"], elsewhere)
        return [item]
    division = job.divide(context, request)
    for line in division.report.view().lines():
        _log.info("%s: %s", table.name, line)
    plans_only = request.dry_run and not request.info.dry_run_is_work
    if division.blocked is not None and (plans_only or not division.pieces):
        raise division.blocked
    sent = dispatch(request, job.size(division.report), opened.settings.dispatch)
    items = [_item(table, piece, asked, sent) for piece in division.pieces]
    for item in items:
        _log.info("%s, %s", item["label"], sent)
    if not items:
        _log.info("%s: nothing to do: %s", table.name, division.report.why())
    elif plans_only:
        _log.info("%s: dry run: nothing is changed", table.name)
    return [] if plans_only else items


def is_frozen(opened: OpenTable, request: JobRequest) -> bool:
    """Return whether a job has no work because its table is frozen, and log why.

    The run that found the cause has failed and told people; the runs until the thaw do not, or they would page on
    and on.
    """
    active = () if request.info.acts_on_frozen else opened.freezes.active()
    for freeze in active:
        for line in explain(freeze):
            _log.warning("%s: %s", opened.uri, line)
    return any(freeze.stops_table for freeze in active)


def _item(table: RegisteredTable, piece: Piece, asked: JobRequest, sent: Dispatch) -> WorkItem:
    # What the registry gave for names stays with this task.
    names = {name: getattr(asked, name) for name in granted_fields(type(asked)).values()}
    return WorkItem(
        label=table.name if piece.label == table.uri else f"{table.name}: {piece.label}",
        table=table.name,
        job=piece.request.info.name,
        request=piece.request.model_copy(update=names).to_json(),
        promise=dict(piece.promise),
        ticket="",
        to_spark=sent.to_spark,
        where=str(sent),
        planned=True,
    )


def require_job(items: Iterable[WorkItem], job: str) -> None:
    """Refuse work of another job than the task's own, and what is no work; only changed results of tasks can be either.

    Raises:
        InvalidRequestError: There is such work. It is not done: rights and approvals differ from DAG to DAG.
    """
    require_handed(items, WorkItem)
    others = sorted({str(item["job"]) for item in items if item["job"] != job})
    if others:
        raise InvalidRequestError(
            "this task does work of one job only",
            remedy="trigger the DAG of the other job, if you may",
            job=job,
            found=others,
        )


def require_handed(values: object, kind: type, by: str = "plan") -> None:
    """Refuse what a task is handed if it is no sequence of this kind, because somebody changed what a task returned.

    Args:
        values: What it is handed.
        kind: What each of them must be.
        by: The task that hands it over.

    Raises:
        InvalidRequestError: It is something else.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(_fits(each, kind) for each in values):
        raise changed_meanwhile(values, kind, by)


def changed_meanwhile(values: object, kind: type, by: str) -> InvalidRequestError:
    """Return what a task says that is handed something else than the task before it returned."""
    return InvalidRequestError(
        "what this task was handed is not what the task before it returns",
        remedy=f"clear the task `{by}`, which hands it over anew",
        expected=kind.__name__,
        found=str(values)[:_LONGEST_SHOWN],
    )


def _fits(value: object, kind: type) -> bool:
    if not is_typeddict(kind):
        return isinstance(value, get_origin(kind) or kind)
    types = get_type_hints(kind)
    return (
        isinstance(value, Mapping)
        and value.keys() == types.keys()
        and all(_fits(value[name], each) for name, each in types.items())
    )


def request_of(item: WorkItem) -> JobRequest:
    """Return the request of a piece of work, with what the registry gives for its names.

    Raises:
        InvalidRequestError: It names something that is not registered.
    """
    return _admitted(find_table(item["table"]), parse_request(item["job"], item["request"]))


def wanted_leases(items: Sequence[WorkItem]) -> list[WantedLease]:
    """Return what the work of a run leases; pieces of one key share one."""
    found: list[WantedLease] = []
    for item in items:
        key = lease_key(item)
        if key is None:
            continue
        wanted = WantedLease(table=item["table"], job=key.job, scope=key.scope)
        if wanted not in found:
            found.append(wanted)
    return found


def lease_key(item: WorkItem) -> JobKey | None:
    """Return what a piece of work leases; None if its job takes no lease."""
    request = request_of(item)
    return request.key if request.info.takes_lease and not request.dry_run else None


def require_free(item: WorkItem, holder: str) -> None:
    """Refuse to hand on work that another run is doing: the application would start only to find that.

    Raises:
        LeaseHeldError: Another run has the lease. Try again later.
    """
    key = lease_key(item)
    if key is not None:
        open_table(find_table(item["table"])).opened.leases.require_free(key, holder)


def hold_leases(items: Sequence[WorkItem], holder: str) -> list[WorkItem]:
    """Take the leases of a run's work, all or none.

    Returns:
        The work with its tickets.

    Raises:
        LeaseHeldError: Another run has one of the leases. None is kept; try again later.
    """
    tickets: dict[tuple[str, JobKey], tuple[str, str]] = {}
    with ExitStack() as undo:
        undo.callback(lambda: give_back(tickets.values()))
        for wanted in wanted_leases(items):
            key = JobKey(wanted["job"], wanted["scope"])
            table = find_table(wanted["table"])
            # By the name in the work: the table may have got an entry, and so another name, since its plan.
            tickets[wanted["table"], key] = table.name, take(table, key, holder)
        undo.pop_all()
    return [_with_ticket(item, tickets) for item in items]


def _with_ticket(item: WorkItem, tickets: Mapping[tuple[str, JobKey], tuple[str, str]]) -> WorkItem:
    key = lease_key(item)
    return {**item, "ticket": tickets[item["table"], key][1] if key is not None else ""}


def release_leases(items: Sequence[WorkItem]) -> list[str]:
    """Give the leases of a run's work back.

    Returns:
        The tickets that were given back; the others were lost before, or end by themselves.
    """
    require_handed(items, WorkItem)
    return list(give_back(dict.fromkeys((item["table"], item["ticket"]) for item in items if item["ticket"])))


def do_work(item: WorkItem, holder: str) -> WorkResult:
    """Do a piece of work in this process, under its lease, without waiting for anything.

    Args:
        item: The work; without a ticket the job takes its own lease and gives it back.
        holder: The run's id.

    Raises:
        FencedError: Another run has the lease now. Do not try again: the other run does the work.
        ConflictError: The table was changed by others, or storage did not answer. Try again.
        CorruptionError: It needs a person.
        InvalidRequestError: The request does not fit the table.
    """
    request = unwaiting(request_of(item))
    ticket = parse_ticket(item["ticket"]) if item["ticket"] else None
    table = find_table(item["table"])
    report: JobReport = open_table(table).run(request, holder=holder, ticket=ticket)
    for line in report.view().lines():
        _log.info("%s", line)
    failure = load_job(request).failure(request, report)
    if failure is not None:
        raise failure
    due_at = report.due_at if isinstance(report, GcReport) else None
    return WorkResult(
        table=table.name,
        uri=table.uri,
        job=item["job"],
        outcome=report.outcome.value,
        facts=dict(report.facts()),
        due_at=due_at.isoformat() if due_at is not None else "",
    )


def unwaiting(request: JobRequest) -> JobRequest:
    """Return a request without the wait for a grace period, in which the task is deferred.

    Waiting in the job would take a worker and a pool slot.
    """
    return request.model_copy(update={"wait": False}) if isinstance(request, GcRequest) else request


def both_halves(begun: WorkResult, rest: WorkResult) -> WorkResult:
    """Return the result of work that had to wait. What its second half drained itself is left to a later run."""
    if rest["outcome"] == JobOutcome.NOTHING_TO_DO.value:
        return {**begun, "due_at": ""}
    return {**rest, "facts": {**rest["facts"], "before_waiting": begun["facts"]}, "due_at": ""}


def proofs_elsewhere(items: Sequence[WorkItem], holder: str) -> list[WorkItem]:
    """Return what applications have to prove before ``verify_work``, which finds in the ledger what they found."""
    found = []
    for table, pieces in _by_table(items):
        context = JobContext(open_table(table).opened, holder=holder)
        proving = load_job(pieces[0].request).proving(context, pieces)
        if proving is None:
            continue
        sent = dispatch(proving.request, proving.work, context.settings.dispatch)
        _log.info("%s: %s, %s", table.name, proving.request.info.name, sent)
        if sent.to_spark:
            found.append(_item(table, Piece(table.uri, proving.request), proving.request, sent))
    return found


def _by_table(items: Sequence[WorkItem]) -> list[tuple[RegisteredTable, list[Piece]]]:
    named = {name: find_table(name) for name in dict.fromkeys(item["table"] for item in items)}
    return [
        (
            table,
            [
                Piece(each["label"], request_of(each), each["promise"])
                for each in items
                if named[each["table"]] == table
            ],
        )
        for table in dict.fromkeys(named.values())
    ]


def verify_work(items: Sequence[WorkItem], results: Iterable[WorkResult | None], holder: str) -> list[TableChange]:
    """Read the tables of a run anew, and find what its work promised.

    Args:
        items: The work.
        results: Of the pieces that ran in a worker and changed something.
        holder: The run's id.

    Returns:
        One entry per table.

    Raises:
        CorruptionError: A promise does not hold, or something needs a person. Start no further job of this table.
        InternalError: The job did not do what it reported.
    """
    facts = [each for each in results if each is not None]
    changes = []
    for table, pieces in _by_table(items):
        context = JobContext(open_table(table).opened, holder=holder)
        proof = load_job(pieces[0].request).verify(
            context, pieces, [each["facts"] for each in facts if each["uri"] == table.uri]
        )
        _log.info("%s: %s", table.name, proof.summary)
        changes.append(TableChange(table=table.name, uri=table.uri, summary=proof.summary, facts=dict(proof.facts)))
    return changes
