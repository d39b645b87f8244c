"""The Spark application of every job: one JSON document in, a report and an exit code out."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memwal_core.coordination.lease import parse_ticket
from memwal_core.errors import InvalidRequestError, MemwalError, UnavailableError
from memwal_core.jobs.document import JobDocument, load_document
from memwal_core.jobs.job import JobReport
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.runner import load_job
from memwal_core.native.arenas import limit_arenas
from memwal_core.opening import open_here
from memwal_core.redaction import log_redacted, show_unexpected
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.telemetry import telemetry

_log = logging.getLogger(__name__)


def main(job: str, arguments: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code (``docs/errors.md``).

    Args:
        job: Its name.
        arguments: The document, ``@FILE`` or ``-``; the process's own if None. Without any, the environment has it.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    limit_arenas()
    log_redacted(logging.INFO)
    with telemetry():
        try:
            document = _document(job, given)
            require_place(document.report)
            report = _run(document)
            for line in report.view().lines():
                _log.info("%s", line)
            deliver(report.to_dict(), document.report)
        except MemwalError as error:
            sys.stderr.write(f"error: {error}\n")
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes out without secrets
            show_unexpected(error)
            return 1
    accepted = document.ok_when_nothing and report.outcome is JobOutcome.NOTHING_TO_DO
    accepted |= document.ok_when_blocked and report.outcome is JobOutcome.BLOCKED
    accepted |= document.ok_when_partial and report.outcome is JobOutcome.PARTIAL
    if accepted:
        return 0
    failure = load_job(document.parsed()).failure(document.parsed(), report)
    if failure is not None:
        sys.stderr.write(f"error: {failure}\n")
    return report.outcome.exit_code


def _document(job: str, given: Sequence[str]) -> JobDocument:
    if len(given) > 1:
        raise InvalidRequestError(
            "a job takes one argument: its JSON document",
            remedy="quote the document for the shell",
            arguments=len(given),
        )
    document = load_document(given[0] if given else "")
    if document.job not in ("", job):
        raise InvalidRequestError(
            "the document is for another job",
            remedy="submit the application of that job",
            document=document.job,
            job=job,
        )
    return document.model_copy(update={"job": job})


def _run(document: JobDocument) -> JobReport:
    request = document.parsed()
    table = open_here(document.uri, document.storage_options, even_if_damaged=request.info.mends_damage)
    session = LateSession(f"memwal {document.job} {document.uri}")
    try:
        report: JobReport = table.run(
            request,
            holder=document.holder or None,
            ticket=parse_ticket(document.ticket) if document.ticket else None,
            executors=SparkExecutors(session, table.base),
        )
    finally:
        session.stop()
    return report


def require_place(target: str) -> None:
    """Refuse a target to which no report can be delivered, before the work is done that it is about.

    Raises:
        InvalidRequestError: It is a directory, or in none.
    """
    path = Path(target)
    if target not in {"", "-"} and (path.is_dir() or not path.parent.is_dir()):
        raise InvalidRequestError(
            "the report cannot be written there", remedy="name a file in a directory that is there", report=target
        )


def deliver(report: Mapping[str, object], target: str) -> None:
    """Write a report as JSON to a file, or to stdout for ``-``; nowhere without a target.

    Raises:
        UnavailableError: It cannot be written. What it is about was done.
    """
    document = json.dumps(report, indent=2) + "\n"
    try:
        if target == "-":
            sys.stdout.write(document)
            sys.stdout.flush()
        elif target:
            Path(target).write_text(document, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            "the report cannot be written, of work that was done",
            remedy="correct the place of the report, and see `memwal history` for what was done",
            report=target,
            problem=error.strerror or str(error),
        ) from error
