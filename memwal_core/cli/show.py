"""Showing reports and findings in a terminal, the same way for every command."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from memwal_core.jobs.findings import Finding, Severity
from memwal_core.jobs.view import Grid, ReportView
from memwal_core.vocabulary import Vocabulary, word

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


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


def show_findings(console: Console, findings: tuple[Finding, ...], vocabulary: Vocabulary = Vocabulary.REGION) -> None:
    """Print each finding with its evidence, its risk, what to do and where that is explained."""
    for finding in findings:
        console.print(
            f"\n{finding.severity.value}: {finding.finding_id}", style=_STYLES[finding.severity], markup=False
        )
        if finding.region_id is not None:
            console.print(f"  {word('region', vocabulary)}: {finding.region_id}", markup=False)
        console.print(f"  {finding.summary}", markup=False)
        for name, value in finding.evidence.items():
            if name != "subject":
                console.print(f"    {word(name, vocabulary)}: {value}", markup=False)
        console.print(f"  risk: {finding.risk}", markup=False)
        console.print(f"  next: {finding.remedy}", markup=False)
        console.print(f"  see: {finding.runbook}", markup=False)
