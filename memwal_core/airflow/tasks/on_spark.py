"""A piece of work as a Spark application: what it is handed, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress

from memwal_core.airflow.failures import verdict_of
from memwal_core.airflow.tasks.tables import find_table, open_table
from memwal_core.airflow.tasks.work import WorkItem, WorkResult, request_of, unwaiting
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import MemwalError
from memwal_core.jobs.document import JobDocument
from memwal_core.jobs.outcome import JobOutcome

_log = logging.getLogger(__name__)


def document_of(item: WorkItem, holder: str) -> JobDocument:
    """Return what the Spark application of a piece of work is handed."""
    return JobDocument(
        job=item["job"],
        uri=find_table(item["table"]).uri,
        request=unwaiting(request_of(item)).to_json(),
        holder=holder,
        ticket=item["ticket"],
        ok_when_nothing=True,
        # The task that verifies reads the stored report, logs every check, and fails with the right runbook.
        ok_when_blocked=item["job"] == "quality",
        # What a run did for all other regions stands, and no retry mends a damaged one: the signal pages.
        ok_when_partial=True,
    )


@contextmanager
def failure_recorded(item: WorkItem, holder: str, before: Set[str] | None) -> Iterator[None]:
    """Record that an application failed which left no record itself, for example because it did not start.

    Without one, the job would not pause however often it failed, and its cycle would have found nothing to do.
    ``before`` is what ``recorded_runs`` returned.
    """
    try:
        yield
    except Exception as error:
        request = request_of(item)
        with suppress(MemwalError):
            if not request.dry_run and (recorded_runs(item, holder) or set()) <= (before or set()):
                opened = open_table(find_table(item["table"])).opened
                what = verdict_of(error)
                end = RunEnd(opened.clock.now(), RunOutcome.FAILED, error=type(error).__name__, verdict=what)
                opened.ledger.end(opened.new_run(request.key, holder), end)
        raise


def recorded_runs(item: WorkItem, holder: str) -> Set[str] | None:
    """Return the ids of what a run did of a job, None if they cannot be read.

    To ask before an application is submitted: a cycle catches up twice, and a cleared one does all again.
    """
    try:
        history = open_table(find_table(item["table"])).opened.ledger.history(request_of(item).key)
    except MemwalError as error:
        _log.warning("%s: what this run did before cannot be read: %s", item["label"], error)
        return None
    return {run.run_id for run in history.runs if run.holder == holder}


def result_of(item: WorkItem, holder: str, before: Set[str] | None) -> WorkResult:
    """Return what an application did that ended well, as the table's ledger tells: its driver may run anywhere.

    A ledger that cannot be written keeps no job from working. Then what it did is not known, which is no success: the
    outcome is a conflict, after which nothing is taken for unchanged, and the task that verifies reads the table.

    Args:
        item: The piece of work.
        holder: Who the application worked for.
        before: What ``recorded_runs`` returned before it was submitted.

    Raises:
        CorruptionError: The history cannot be read.
    """
    table = find_table(item["table"])
    request = request_of(item)
    history = open_table(table).opened.ledger.history(request.key)
    # Without ``before``, a record may be that of an earlier application.
    since = [run for run in history.runs if run.run_id not in before] if before is not None else []
    own = [run for run in since if run.holder == holder and run.has_ended]
    if not own and not request.dry_run:
        _log.warning("%s: the application ended well and left no record of what it did", item["label"])
    # A dry run leaves no record.
    unrecorded = JobOutcome.DONE if request.dry_run else JobOutcome.CONFLICT
    facts = dict(own[-1].facts) if own else {}
    return WorkResult(
        table=table.name,
        uri=table.uri,
        job=item["job"],
        outcome=own[-1].outcome.value if own else unrecorded.value,
        facts=facts,
        due_at=str(facts.get("due_at", "")),
    )
