"""Showing reports in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from memwal_core.jobs.view import Grid, ReportView


def show_view(view: ReportView, console: Console | None = None) -> None:
    """Print a report: its headline, its grids, its notes."""
    console = console if console is not None else Console(highlight=False)
    console.print(view.headline, markup=False, soft_wrap=True)
    for grid in view.grids:
        if grid.rows:
            console.print(as_table(grid))
    for note in view.notes:
        console.print(note, markup=False, soft_wrap=True)


def as_table(grid: Grid) -> Table:
    """Return a grid as a table; the first column is never wrapped, because it names things."""
    table = Table()
    for position, name in enumerate(grid.columns):
        table.add_column(name, overflow="fold", no_wrap=position == 0)
    for row in grid.rows:
        table.add_row(*row)
    return table
