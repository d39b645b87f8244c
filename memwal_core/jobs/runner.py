"""Running a job: lease, freeze, ledger, metrics and exit code, the same for everyone who starts one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, cast

from memwal_core.base_table import BaseTable, list_versions
from memwal_core.coordination.freeze.watch import HistoryWatch
from memwal_core.coordination.lease import Lease, LeaseKeeper, LeaseTicket
from memwal_core.errors import ConflictError, FencedError, FrozenError, MemwalError, ObjectNotFoundError
from memwal_core.extras import extras_named
from memwal_core.jobs.context import JobContext, OpenTable, Progress, unwatched
from memwal_core.jobs.job import Job, JobReport
from memwal_core.jobs.outcome import CheckLease, JobOutcome, no_lease
from memwal_core.jobs.progress import logged
from memwal_core.jobs.recording import recorded
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.metrics import INSTRUMENTS, Instruments
from memwal_core.storage.concurrent import FAST_STORES, run_two

_CHANGED = {JobOutcome.DONE, JobOutcome.PARTIAL, JobOutcome.CONFLICT, JobOutcome.BLOCKED}
"""Outcomes after which a table may differ from what the job last read of it."""

_log = logging.getLogger(__name__)


def load_job(request: JobRequest) -> Job[Any, JobReport]:
    """Import the job of a request; only now is its engine needed (``InvalidRequestError`` if it is not installed)."""
    module, _, name = request.info.implementation.partition(":")
    with extras_named():
        return cast("Job[Any, JobReport]", getattr(import_module(module), name)())


def execute(  # noqa: PLR0913 - what may differ between those who start a job
    opened: OpenTable,
    request: JobRequest,
    *,
    holder: str | None = None,
    ticket: LeaseTicket | None = None,
    guard: CheckLease | None = None,
    executors: Executors | None = None,
    progress: Progress = unwatched,
    instruments: Instruments = INSTRUMENTS,
) -> JobReport:
    """Run a job on a table, and record it. A dry run takes no lease and is not recorded.

    A request that is refused before it starts, and a lease that another run holds, leave no failed run behind.

    Args:
        opened: The table.
        request: What is asked for.
        holder: Who runs it; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
        guard: Take no lease, and call this before each write; it raises if the right to write is gone.
        executors: What does heavy work outside of this process; nothing does if None.
        progress: Is told how far the job is.
        instruments: Count the run and what it did; not a dry run.

    Raises:
        InvalidRequestError: The request does not fit the table or the settings, or the table has no MemWAL.
        ObjectNotFoundError: The table was dropped; nothing was written.
        LeaseHeldError: Another run of the job is under way; the facts say whose, and until when it holds the lease.
        ConflictError: Others changed the table or the lease each time. Run again.
        CommitUnknownError: A commit may or may not have landed. Run again.
        UnavailableError: Storage failed. Run again; what was done stands.
        CorruptionError: Stored state contradicts itself. Follow the runbook.
        FrozenError: The table is frozen, or was found to need it. A person decides with ``memwal thaw``.
    """
    job = load_job(request)
    job.check(opened.settings, request)
    name = holder or (ticket.holder if ticket is not None else opened.new_holder())
    if request.dry_run:
        return job.run(JobContext(opened, no_lease, name, executors, progress), request)
    progress = logged(progress, request.info.name, opened.uri, opened.clock)
    resting = job.at_rest(JobContext(opened, no_lease, name, executors, progress), request)
    if resting is not None:
        instruments.observe(request.info.name, opened.uri, lambda: resting)
        _log.info("%s left out [table=%s] %s", request.info.name, opened.uri, resting.why())
        return resting
    opened.require_there()
    needs_lease = request.info.takes_lease and guard is None
    with _held(opened, request, name, ticket) if needs_lease else _unheld(opened, request, guard) as (check, claim):
        watch = None
        if not request.info.acts_on_frozen:
            watch = HistoryWatch(opened.base, opened.manifests, opened.freezes, request.info.name)
        context = JobContext(opened, check, name, executors, progress, claim, watch)
        work = partial(_worked, job, context, request)
        run = opened.new_run(request.key, name, claim.fencing_token if claim is not None else 0)
        begun = partial(
            recorded, opened, run, work, job.recorded_as, partial(_remember, watch), partial(_prepare, watch)
        )
        report: JobReport = instruments.observe(request.info.name, opened.uri, begun)
    job.count(instruments, report)
    _log.info(
        "%s ended [table=%s, outcome=%s, seconds=%.1f] %s",
        request.info.name,
        opened.uri,
        report.outcome.value,
        report.seconds,
        report.why(),
    )
    return report


def _worked(job: Job[Any, JobReport], context: JobContext, request: JobRequest) -> JobReport:
    """Run a job, on a table whose history goes on where it was last seen if the job cares.

    Raises:
        ConflictError: A version that the job reads was superseded and cleaned up.
    """
    try:
        return (job.run if context.watch is None else partial(_watched, job, context.watch))(context, request)
    except ObjectNotFoundError as error:
        raise _removed_meanwhile(context.base, error) or error from error


def _watched(job: Job[Any, JobReport], watch: HistoryWatch, context: JobContext, request: JobRequest) -> JobReport:
    """Run a job on a table whose history goes on where it was last seen.

    Whatever the job reads is compared as it is read, and nothing is written after a contradiction.

    Raises:
        FrozenError: The table is frozen, or this run found that it must be.
    """
    watched = watch.begin()

    def guard() -> None:
        watch.check_record()
        context.guard()

    opened = replace(context.opened, base=watched.base, manifests=watched.manifests)
    report = job.run(replace(context, opened=opened, guard=guard), request)
    watch.check()
    if report.outcome in _CHANGED and not job.knows_the_end(report):
        with _learning(report):
            watch.read_again()
    return report


def _removed_meanwhile(table: BaseTable, error: ObjectNotFoundError) -> ConflictError | None:
    """Return what a job met if the version of the table that it reads was superseded and cleaned up; else None."""
    version = error.facts.get("version")
    if not isinstance(version, int):
        return None
    with suppress(MemwalError):
        existing = [each.version for each in list_versions(table)]
        if version not in existing and version < max(existing, default=0):
            return ConflictError(
                "a version of the table was removed while this run read it",
                remedy="run it again; keep old versions longer than any job runs",
                table=table.uri,
                version=version,
            )
    return None


def _prepare(watch: HistoryWatch | None) -> None:
    if watch is not None:
        watch.read_record()


def _remember(watch: HistoryWatch | None, report: JobReport) -> None:
    if watch is not None:
        with _learning(report):
            watch.remember()


@contextmanager
def _learning(report: JobReport) -> Iterator[None]:
    try:
        yield
    except FrozenError:
        raise
    except MemwalError as error:
        # What the job did stands, and the next run reads it again.
        _log.warning("what was seen is not remembered [table=%s]: %s", report.table_uri, error)


@contextmanager
def _held(
    opened: OpenTable, request: JobRequest, holder: str, ticket: LeaseTicket | None
) -> Iterator[tuple[CheckLease, LeaseTicket | None]]:
    if ticket is None:
        # The record is believed only after a look for a newer one, the history only if it can be added to.
        take = partial(opened.leases.acquire, request.key, holder, before_first=opened.base.require_enabled)
        prefetch = partial(_prefetch, opened, request)
        lease = take() if opened.base.store.kind in FAST_STORES else run_two(opened.base.store.kind, take, prefetch)[0]
        with lease:
            yield lease.check, lease.ticket
        return
    lease = _resumed(opened, request, holder, ticket)
    # Steps between two checks may take longer than a lease lives.
    with LeaseKeeper(lease, opened.settings.lease.renew_after_s / 2):
        yield lease.check, lease.ticket


def _prefetch(opened: OpenTable, request: JobRequest) -> None:
    """Read what a run begins with, while its lease is being taken."""

    def load() -> None:
        with suppress(MemwalError):
            opened.freezes.load()

    run_two(opened.base.store.kind, partial(opened.ledger.prefetch, request.key), load)


def _resumed(opened: OpenTable, request: JobRequest, holder: str, ticket: LeaseTicket) -> Lease:
    try:
        return opened.leases.resume(ticket)
    except FencedError:
        # The carrier of a ticket has begun before, so the loss is the end of a run, and its history says so.
        with opened.ledger.run(opened.new_run(request.key, holder, ticket.fencing_token)):
            raise


@contextmanager
def _unheld(
    opened: OpenTable, request: JobRequest, guard: CheckLease | None
) -> Iterator[tuple[CheckLease, LeaseTicket | None]]:
    if guard is None and not request.info.takes_plain_tables:
        opened.ledger.prefetch(request.key)
        history = opened.ledger.remembered(request.key)
        if history is not None and not history.runs:
            opened.base.require_enabled()
    yield guard if guard is not None else no_lease, None
