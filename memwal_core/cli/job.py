"""What all Spark applications have in common: options, report, exit code."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from memwal_core.admin import TableAdmin
from memwal_core.cli.options import open_admin
from memwal_core.cli.recorded import Request, run_recorded
from memwal_core.errors import MemwalError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.recording import Stepped


class JobReport(Protocol):
    """What every job's report offers."""

    @property
    def outcome(self) -> JobOutcome:
        """How the run ended."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        ...


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every job takes."""
    parser.add_argument("--uri", required=True, help="path or address of the table")
    parser.add_argument("--dry-run", action="store_true", help="only plan")
    parser.add_argument("--ok-when-nothing", action="store_true", help="exit with 0, not 3, if there is nothing to do")
    parser.add_argument("--json", metavar="FILE", help="write the report to this file, or - for stdout")
    parser.add_argument("--storage-option", action="append", metavar="KEY=VALUE", help="for the object store")


def add_holder_option(parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
    """Add the option of the jobs that take a lease."""
    parser.add_argument("--holder", help="who takes the lease; unique per run")


def run_job(
    options: argparse.Namespace, work: Callable[[TableAdmin], JobReport], *, accepted: Collection[JobOutcome] = ()
) -> int:
    """Open the table, do the work, deliver the report.

    Args:
        options: Parsed options, those of ``add_job_options`` among them.
        work: The job; errors of the package become messages on standard error.
        accepted: Outcomes of a report that end with 0, whatever their own code: whoever started the job
            reads the report.

    Returns:
        The exit code (docs/errors.md).
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        report = work(open_admin(options.uri, options.storage_option))
    except MemwalError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    _deliver(report.to_dict(), options.json)
    nothing = options.ok_when_nothing and report.outcome is JobOutcome.NOTHING_TO_DO
    return 0 if nothing or report.outcome in accepted else report.outcome.exit_code


def run_step(
    options: argparse.Namespace,
    key: JobKey,
    request: Callable[[], Request],
    work: Callable[[TableAdmin, Request], Stepped],
) -> int:
    """Run a job that takes its own lease and is recorded, as ``run_job`` runs any.

    Args:
        options: Parsed options, those of ``add_job_options`` and ``add_holder_option`` among them.
        key: The job and what it works on.
        request: Makes the request from the options; what it refuses is no run.
        work: The job.
    """

    def recorded_work(admin: TableAdmin) -> Stepped:
        return run_recorded(admin, key, request(), lambda asked: work(admin, asked), holder=options.holder)

    return run_job(options, recorded_work)


def _deliver(report: dict[str, object], target: str | None) -> None:
    document = json.dumps(report, indent=2)
    if target == "-":
        sys.stdout.write(document + "\n")
    elif target:
        Path(target).write_text(document + "\n", encoding="utf-8")
