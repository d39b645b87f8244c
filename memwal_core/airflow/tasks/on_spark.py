"""A piece of work as a Spark application: what it is handed, and what became of it."""

from __future__ import annotations

import logging

from memwal_core.airflow.tasks.tables import find_table, open_table
from memwal_core.airflow.tasks.work import WorkItem, WorkResult, request_of, unwaiting
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


def result_of(item: WorkItem, holder: str) -> WorkResult:
    """Return what an application did that ended well, as the table's ledger tells: its driver may run anywhere.

    A ledger that cannot be written keeps no job from working. Then what it did is not known, which is no success: the
    outcome is a conflict, after which nothing is taken for unchanged, and the task that verifies reads the table.

    Raises:
        CorruptionError: The history cannot be read.
    """
    table = find_table(item["table"])
    request = request_of(item)
    history = open_table(table).opened.ledger.history(request.key)
    own = [run for run in history.runs if run.holder == holder and run.has_ended]
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
