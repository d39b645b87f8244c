"""`memwal merge`: bring flushed MemTables into the base table."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from memwal_core.admin import MergeRequest
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json, show_bytes
from memwal_core.cli.recorded import run_recorded
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.merge import CommitReport, MergePlan, MergeReport, RegionShare
from memwal_core.maintenance.outcome import JobOutcome


def merge(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Only this region; repeatable.", metavar="UUID")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=1, help="Arrow bytes of flushed MemTables per commit.")
    ] = None,
    due_only: Annotated[
        bool, typer.Option("--due-only", help="Only regions of which a trigger fires: generations, bytes or age.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the first plan and change nothing.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Merge flushed MemTables into the base table until none is left.

    Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 another merge runs, conflict or storage failure
    (try again), 5 a region needs somebody to look at it.
    """
    regions = {parse_region_id(text) for text in region} if region else None
    admin = open_admin(uri, storage_option)
    with _bar(disable=json or dry_run) as bar:
        request = MergeRequest(
            regions=regions, max_bytes=max_bytes, dry_run=dry_run, due_only=due_only, progress=_Watcher(bar)
        )
        report = run_recorded(admin, JobKey("merge"), request, admin.merge)
    if json:
        print_json(report.to_dict())
    else:
        _show(report)
    sys.exit(report.outcome.exit_code)


def _bar(*, disable: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=disable, transient=True)


class _Watcher:
    """Draws a merge's progress, counted in generations."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._read = bar.add_task("read", total=0)
        self._committed = bar.add_task("committed", total=0)
        self._done = 0
        self._merged: dict[object, int] = {}

    def planned(self, plan: MergePlan) -> None:
        """Take on the plan's generations; what was read for a commit that was overtaken counts no more."""
        waiting = plan.generations + sum(region.waiting for region in plan.regions)
        self._merged.update({region.region_id: region.merged for region in plan.regions})
        for task in (self._read, self._committed):
            self._bar.update(task, completed=self._done, total=self._done + waiting)

    def read(self, share: RegionShare) -> None:
        """Advance by what was read."""
        self._bar.advance(self._read, share.through - share.merged)

    def committed(self, commit: CommitReport) -> None:
        """Advance by what was committed."""
        for region, through in commit.marks.items():
            self._done += through - self._merged[region]
            self._merged[region] = through
        self._bar.update(self._committed, completed=self._done)


def _show(report: MergeReport) -> None:
    console = Console(highlight=False)
    console.print(_headline(report), markup=False, soft_wrap=True)
    if report.reason:
        console.print(report.reason, markup=False, soft_wrap=True)
    table = Table()
    table.add_column("region", no_wrap=True)
    planned = report.outcome is JobOutcome.PLANNED
    columns = ("merged", "takes" if planned else "here", "waiting", "why", *(("due",) if report.triggers else ()))
    for name in columns:
        table.add_column(name, overflow="fold")
    taken = {region.region_id: len(region.take) for region in report.plan.regions}
    for region in report.regions:
        here = taken[region.region_id] if planned else region.merged_here
        before, after = region.merged_before, region.merged_after
        why = f"{region.verdict.value}: {region.evidence}" if region.evidence else region.verdict.value
        progress = str(after) if before == after else f"{before} -> {after}"
        trigger = report.triggers.get(region.region_id)
        due = (trigger.reason,) if trigger is not None else ()
        table.add_row(str(region.region_id), progress, str(here), str(region.waiting), why, *due)
    console.print(table)


def _headline(report: MergeReport) -> str:
    if report.outcome is JobOutcome.PLANNED:
        plan = report.plan
        return f"would merge {plan.generations} generations, {show_bytes(plan.size_bytes)}, on version {plan.version}"
    upserts = sum(commit.upserts for commit in report.commits)
    tombstones = sum(commit.tombstones for commit in report.commits)
    return (
        f"{report.outcome.value.replace('_', ' ')}: {report.generations} generations in {len(report.commits)} commits, "
        f"{upserts:,} rows written, {tombstones:,} keys deleted, {show_bytes(report.bytes_planned)} read, "
        f"version {report.version_before} -> {report.version_after}, {report.seconds:.2f} s ({report.strategy})"
    )
