"""Showing reports and findings in a terminal, the same way for every command."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from memwal_core.clock import SystemClock
from memwal_core.jobs.context import Progress, unwatched
from memwal_core.jobs.view import Grid, ReportView
from memwal_core.observe.findings import Finding, Severity
from memwal_core.vocabulary import Vocabulary, word

LOG_EVERY_S = 60.0
"""Seconds between two lines of progress in a log."""

_NAMES_SHARE = 3
"""Names that take a larger part of a line than one in this many have their values below them."""
_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


def show_view(view: ReportView) -> None:
    """Print a report: its headline, its grids, its notes."""
    console = Console(highlight=False)
    console.print(view.headline, markup=False, soft_wrap=True)
    for grid in view.grids:
        if grid.rows:
            show_grid(grid, console)
    for note in view.notes:
        console.print(note, markup=False, soft_wrap=True)


def show_grid(grid: Grid, console: Console) -> None:
    """Print a grid as a table; where that would break words, as one block of lines for each row."""
    if sum(_least_widths(grid)) + 3 * len(grid.columns) + 1 <= console.width:
        console.print(_as_table(grid))
        return
    are_names_short = max(map(cell_len, grid.columns[1:]), default=0) <= console.width // _NAMES_SHARE
    for row in grid.rows:
        console.print(row[0], style="bold", markup=False, soft_wrap=True)
        block = Table.grid(padding=(0, 2))
        if are_names_short:
            block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for name, cell in zip(grid.columns[1:], row[1:], strict=True):
            if cell and are_names_short:
                block.add_row(f"  {escape(name)}", escape(cell))
            elif cell:
                block.add_row(Padding(escape(name), (0, 0, 0, 2)))
                block.add_row(Padding(escape(cell), (0, 0, 0, 4)))
        console.print(block)


def _as_table(grid: Grid) -> Table:
    """Return a grid as a table; the first column is never wrapped, because it names things."""
    table = Table()
    for position, (name, width) in enumerate(zip(grid.columns, _least_widths(grid), strict=True)):
        # Rich narrows all columns alike, so that it would break a long word beside columns with room.
        table.add_column(escape(name), overflow="fold", no_wrap=position == 0, min_width=width)
    for row in grid.rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _least_widths(grid: Grid) -> list[int]:
    """Return for each column of a grid in how many columns of a terminal it breaks no word."""
    first = max(cell_len(cell) for cell in (grid.columns[0], *(row[0] for row in grid.rows)))
    cells = zip(grid.columns[1:], *(row[1:] for row in grid.rows), strict=True)
    return [first, *(max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in cells)]


def show_findings(console: Console, findings: tuple[Finding, ...], vocabulary: Vocabulary) -> None:
    """Print each finding with its evidence, its risk, what to do and where that is explained."""
    for finding in findings:
        console.print(
            f"\n{finding.severity.value}: {finding.finding_id}", style=_STYLES[finding.severity], markup=False
        )
        if finding.region_id is not None:
            console.print(f"  {word('region', vocabulary)}: {finding.region_id}", markup=False)
        console.print(f"  {finding.summary}", markup=False)
        for name, value in finding.shown_evidence.items():
            if name != "subject":
                console.print(f"    {word(name, vocabulary)}: {value}", markup=False)
        console.print(f"  risk: {finding.risk}", markup=False)
        console.print(f"  next: {finding.remedy}", markup=False)
        if finding.command:
            console.print(f"  run: {finding.command}", markup=False)
        console.print(f"  see: {finding.runbook}", markup=False)


@contextmanager
def progress_shown(job: str, *, disable: bool) -> Iterator[Progress]:
    """Show on stderr that a job works, and the stages that the yielded function is told of.

    In a terminal by bars; in a log, which Rich would leave an empty line in, by a line a minute.
    """
    console = Console(stderr=True)
    if disable:
        yield unwatched
        return
    with _in_terminal(job, console) if console.is_terminal else _in_log(job) as tell:
        yield tell


@contextmanager
def _in_terminal(job: str, console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stages: dict[str, TaskID] = {}
    with Bar(*columns, console=console, transient=True) as bar:
        whole = bar.add_task(job, total=None)

        def tell(stage: str, done: int, total: int | None) -> None:
            bar.update(whole, visible=False)
            if stage not in stages:
                stages[stage] = bar.add_task(stage, total=total)
            bar.update(stages[stage], completed=done, total=total)

        yield tell


@contextmanager
def _in_log(job: str) -> Iterator[Progress]:
    clock, ended = SystemClock(), threading.Event()
    began = clock.monotonic()
    stages: dict[str, str] = {}

    def tell(stage: str, done: int, total: int | None) -> None:
        stages[stage] = f"{stage} {done}" if total is None else f"{stage} {done} of {total}"

    def tell_on() -> None:
        while not ended.wait(LOG_EVERY_S):
            how_far = "".join(f", {each}" for each in list(stages.values()))
            with suppress(OSError, ValueError):  # Nobody reads it any more.
                typer.echo(f"{job}: works for {clock.monotonic() - began:.0f} s{how_far}", err=True)

    # A daemon: the process ends although stderr hangs.
    teller = threading.Thread(target=tell_on, name="memwal-progress", daemon=True)
    with suppress(RuntimeError):  # Without a thread for it, the job works all the same.
        teller.start()
    try:
        yield tell
    finally:
        ended.set()
