"""`memwal maintain`: all jobs of a table, one after another."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json
from memwal_core.maintenance.cycle import JobName, MaintainReport, MaintainRequest, StepEnd, StepReport
from memwal_core.maintenance.outcome import JobOutcome


def maintain(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    delete: Annotated[
        bool, typer.Option("--delete", help="Let garbage collection delete; without it, its plan is shown.")
    ] = False,
    remove_versions: Annotated[
        bool, typer.Option("--remove-versions", help="Let compaction remove old table versions that nothing keeps.")
    ] = False,
    ignore_pauses: Annotated[
        bool, typer.Option("--ignore-pauses", help="Run jobs that pause because they kept failing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show each job's plan and change nothing.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Merge, catch indexes up, compact if due, catch up again, publish a snapshot, collect garbage.

    Stops at the first job that needs a human. Exit codes: 0 done, 2 bad input or unsafe retention,
    3 nothing to do, 4 conflict, pause or storage failure (try again), 5 something needs somebody to
    look at it.
    """
    request = MaintainRequest(
        dry_run=dry_run, delete=delete, remove_versions=remove_versions, ignore_pauses=ignore_pauses
    )
    report = open_admin(uri, storage_option).maintain(request)
    if json:
        print_json(report.to_dict())
    else:
        _show(report, delete=delete)
    sys.exit(report.outcome.exit_code)


def _show(report: MaintainReport, *, delete: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{'plan of ' if report.dry_run else ''}{report.table_uri}: {_words(report.outcome.value)}, "
        f"{report.seconds:.2f} s",
        markup=False,
    )
    table = Table()
    for name in ("job", "outcome", "seconds", "why"):
        table.add_column(name, overflow="fold")
    for step in report.steps:
        table.add_row(step.job.value, _end(step), f"{step.seconds:.2f}", step.why)
    console.print(table)
    for step in report.steps:
        if step.error is not None:
            console.print(f"{step.job.value}: {step.error['what']}; next: {step.error['next']}", markup=False)
    planned = any(step.job is JobName.GC and step.outcome is JobOutcome.PLANNED for step in report.steps)
    if planned and not report.dry_run and not delete:
        console.print("nothing was deleted; --delete lets garbage collection act", markup=False)


def _end(step: StepReport) -> str:
    return _words(step.outcome.value if step.end is StepEnd.RAN else step.end.value)


def _words(value: str) -> str:
    return value.replace("_", " ")
