"""`memwal history`: the runs of all jobs of a table."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.coordination.ledger import RunRecord, run_to_dict, runs_in
from memwal_core.jobs.catalog import require_recorded
from memwal_core.jobs.view import Grid


def history(
    uri: TableUri,
    job: Annotated[str | None, typer.Option("--job", help="Only this job.", metavar="NAME")] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many runs to show.")] = 30,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show what jobs did, the newest last, and which histories cannot be read; jobs run as well without them.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    ledger = table.opened.ledger
    histories, unreadable = ledger.histories(job)
    runs = runs_in(histories)[-last:]
    if job is not None and not histories and not unreadable:
        require_recorded(job)
    pauses = {str(each.key): ledger.judge(each) for each in histories}
    problems = {str(key): f"{error.what}: {error.facts.get('path')}" for key, error in unreadable.items()}
    if json:
        verdicts = {name: pause.to_dict() for name, pause in pauses.items()}
        shown = [run_to_dict(run) for run in runs]
        print_json({"table_uri": table.uri, "runs": shown, "may_run": verdicts, "unreadable": problems})
        return
    console = Console(highlight=False)
    names = ("began", "job", "scope", "outcome", "seconds", "why", "holder")
    if runs:
        show_grid(Grid(names, tuple(tuple(_cells(run)) for run in runs)), console)
    elif not unreadable:
        console.print(f"{job} has not run yet" if job else "no job has run yet", markup=False)
    for name, problem in problems.items():
        console.print(f"{name}: {problem}", style="bold yellow", markup=False, soft_wrap=True)
    for name, pause in pauses.items():
        if pause.failures:
            console.print(f"{name}: {pause.reason}", markup=False, soft_wrap=True)


def _cells(run: RunRecord) -> list[str]:
    seconds = f"{(run.ended - run.started).total_seconds():.1f}" if run.ended is not None else "-"
    why = f"{run.error}: {run.verdict}" if run.error else run.verdict
    return [
        f"{run.started:%Y-%m-%d %H:%M:%S} UTC",
        run.key.job,
        run.key.scope,
        run.outcome.value,
        seconds,
        why or "-",
        run.holder,
    ]
