"""`python -m demo`: a year of flights through writers, Airflow and Spark into a table, and the proof."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import memwal_core
from demo.airflow import find_checkout
from demo.demonstration import BUCKETS, YEAR_DAYS, DemoPlan, DemoReport, run_demo
from demo.directory import claim_directory
from demo.writing import WritingProgress
from memwal_core.clock import SystemClock
from memwal_core.jobs.memory import peak_memory_bytes
from memwal_core.observe.lifecycle import GenerationState
from memwal_core.observe.status import TableStatus, count_states
from memwal_core.settings import load_settings
from memwal_core.text import show_bytes


def demo(
    directory: Annotated[Path, typer.Option(help="Where everything goes; emptied first if it is a demo's.")] = Path(
        ".demo"
    ),
    days: Annotated[int, typer.Option(min=1, max=YEAR_DAYS, help="Flights of the first days of the year.")] = YEAR_DAYS,
    writers: Annotated[int, typer.Option(min=1, max=BUCKETS, help="Writer processes.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="Do not replace an earlier demo: stop instead.")] = False,
) -> None:
    """Run the demonstration: write, merge with Airflow and Spark, compare row for row.

    Exit codes: 0 the table is exactly right, 1 it is not, or a step failed, 2 bad input.
    """
    # `kill` and `timeout` end the children as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    settings = load_settings()
    plan = DemoPlan(claim_directory(directory, keep=keep), checkout, days, writers)
    console = Console(highlight=False)
    with _Screen(console) as screen:
        report = run_demo(plan, settings, SystemClock(), screen, os.environ)
    _summarise(console, plan, report)
    sys.exit(0 if report.difference.identical else 1)


class _Screen:
    """Prints steps as they begin, and draws a bar for each writer while it writes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("  {task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._bars: dict[int, TaskID] = {}
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_bars()

    def step(self, title: str) -> None:
        """Print the title; bars of the step before stay as they are."""
        self._end_bars()
        self._number += 1
        self._console.print(f"\n{self._number}. {title}", style="bold", markup=False)

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"   {text}", markup=False, soft_wrap=True)

    def writing(self, part: int, progress: WritingProgress, fraction: float) -> None:
        """Move a writer's bar."""
        if not self._bars:
            self._progress.start()
        if part not in self._bars:
            self._bars[part] = self._progress.add_task("", total=1.0)
        text = f"writer {part}  {progress.day}  {progress.rows:>7,} rows  {progress.generations:>2} MemTables flushed"
        self._progress.update(self._bars[part], completed=fraction, description=text)

    def status(self, status: TableStatus) -> None:
        """Print the table's state, one line a region."""
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for name in ("   bucket", "flushed", "merged", "waiting"):
            table.add_column(name, justify="right")
        for region in sorted(status.regions, key=lambda region: str(region.value)):
            counts = count_states(region)
            table.add_row(
                ", ".join(str(value) for value in region.value.values()),
                str(counts[GenerationState.FLUSHED]),
                str(counts[GenerationState.MERGED]),
                show_bytes(region.merge_lag_bytes),
            )
        self._console.print(table)
        self.note(
            f"version {status.version}: {status.num_rows:,} rows in the base table, "
            f"{status.merge_lag_generations} generations wait for a merge ({show_bytes(status.merge_lag_bytes)})"
        )

    def _end_bars(self) -> None:
        if self._progress.live.is_started:
            self._progress.stop()


def _summarise(console: Console, plan: DemoPlan, report: DemoReport) -> None:
    console.print("\nSummary", style="bold")
    steps = Table("step", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    steps.add_column("seconds", justify="right")
    for title, seconds in report.steps:
        steps.add_row(title, f"{seconds:.1f}")
    steps.add_row("all", f"{sum(seconds for _, seconds in report.steps):.1f}", style="bold")
    console.print(steps)
    processes = Table("process", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    processes.add_column("seconds", justify="right")
    processes.add_column("peak memory", justify="right")
    for each in report.processes:
        processes.add_row(each.name, f"{each.seconds:.1f}", show_bytes(each.peak_bytes))
    processes.add_row("this one", "", show_bytes(peak_memory_bytes()))
    console.print()
    console.print(processes)
    verdict = report.difference
    console.print(
        f"\n{report.rows_written:,} upserts became {verdict.actual_rows:,} rows through {report.generations} "
        f"flushed MemTables.",
        markup=False,
    )
    console.print(str(verdict), style="bold green" if verdict.identical else "bold red", markup=False, soft_wrap=True)
    table, logs = plan.directory.table, plan.directory.logs
    console.print(
        f"\nLook next:  memwal status {table}\n            {logs}/merge-dag.log", markup=False, soft_wrap=True
    )
