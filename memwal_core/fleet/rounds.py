"""What becomes of one table: its cycle, or the question whether it has any work, and how either is told."""

from __future__ import annotations

from dataclasses import replace

from memwal_core.errors import FrozenError, InternalError, MemwalError
from memwal_core.fleet.isolation import Deadline
from memwal_core.fleet.report import RoundEnd, TableRound
from memwal_core.jobs.cycle.report import MaintainReport
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.redaction import redact
from memwal_core.table import Table


def run_cycle(
    name: str, uri: str, opened: Table, request: MaintainRequest, deadline: Deadline, executors: Executors | None = None
) -> TableRound:
    """Send a table through its cycle.

    Args:
        name: As in the registry.
        uri: Its address there.
        opened: The table.
        request: What its cycle may do.
        deadline: No step begins after it.
        executors: What does heavy work outside of this process.

    Raises:
        MemwalError: As of ``Table.run``.
    """
    began = deadline.clock.monotonic()
    deadline.check()
    report: MaintainReport = opened.run(request, guard=deadline.check, executors=executors)
    found = _finished(name, uri, report, deadline.clock.monotonic() - began)
    return _as_frozen(found, opened) if request.dry_run else found


def failed(name: str, uri: str, error: BaseException | None, seconds: float) -> TableRound:
    """Return the round of a table that ended with an error."""
    known = _known(error)
    described = {
        "class": type(error).__name__,
        "what": known.what,
        "next": known.remedy,
        "facts": {name: str(value) for name, value in known.facts.items()},
    }
    return TableRound(name, uri, RoundEnd.FAILED, known.what, seconds, error=described, exit_code=known.exit_code)


def _finished(name: str, uri: str, report: MaintainReport, seconds: float) -> TableRound:
    busy = report.is_busy
    return TableRound(
        name,
        uri,
        RoundEnd.BUSY if busy else RoundEnd.MAINTAINED,
        report.why(),
        seconds,
        None if busy else report.outcome,
        report.to_dict(),
        exit_code=0 if busy else report.outcome.exit_code,
    )


def _as_frozen(planned: TableRound, opened: Table) -> TableRound:
    """Return what a run would come to: on a frozen table none of what is planned happens."""
    try:
        opened.opened.freezes.require_thawed()
    except FrozenError as error:
        outcome = JobOutcome.FROZEN
        return replace(planned, why=f"{error.what}; {error.remedy}", outcome=outcome, exit_code=outcome.exit_code)
    return planned


def _known(error: BaseException | None) -> MemwalError:
    if isinstance(error, MemwalError):
        return error
    # Of Airflow's hooks, of native code, or a mistake of ours: in any case one about this table alone.
    said = redact(str(error)) or type(error).__name__
    return InternalError(said, remedy="read the log; if it is no mistake in the table's connection, report it")
