"""`memwal catchup`: extend base table indexes over merged rows."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from memwal_core.admin import CatchupRequest
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json
from memwal_core.cli.recorded import run_recorded
from memwal_core.maintenance.catchup import CatchupReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome


def catchup(
    uri: TableUri,
    index: Annotated[
        list[str] | None, typer.Option("--index", help="Only this index; repeatable.", metavar="NAME")
    ] = None,
    merge_segments: Annotated[
        bool, typer.Option("--merge-segments", help="Make one segment of each index, however few it has.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Extend base table indexes over merged rows and record how far they are; nothing is trained anew.

    Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try again),
    5 an index needs somebody to look at it.
    """
    request = CatchupRequest(indexes=set(index) if index else None, merge_segments=merge_segments, dry_run=dry_run)
    admin = open_admin(uri, storage_option)
    key = JobKey.of_index("catchup", index[0]) if index and len(set(index)) == 1 else JobKey("catchup")
    report = run_recorded(admin, key, request, admin.catch_up)
    if json:
        print_json(report.to_dict())
    else:
        show_catchup(Console(highlight=False, soft_wrap=True), report)
    sys.exit(report.outcome.exit_code)


def show_catchup(console: Console, report: CatchupReport) -> None:
    """Print one line about a run and one per index."""
    planned = report.outcome is JobOutcome.PLANNED
    rows = sum(index.rows_indexed for index in report.indexes)
    console.print(
        f"catch-up {report.outcome.value.replace('_', ' ')}: {rows:,} rows indexed, version {report.version_before} "
        f"-> {report.version_after}, {report.seconds:.2f} s",
        markup=False,
    )
    if report.reason:
        console.print(report.reason, markup=False)
    table = Table()
    for name in ("index", "kind", "unindexed rows" if planned else "rows indexed", "segments", "behind", "why"):
        table.add_column(name, overflow="fold")
    unindexed = {plan.name: plan.unindexed_rows for plan in report.plan.indexes}
    for each in report.indexes:
        count = unindexed.get(each.name, 0) if planned else each.rows_indexed
        why = each.verdict.value if planned else f"{each.result.value}: {each.reason or each.verdict.value}"
        behind = f"{each.regions_behind} regions"
        table.add_row(each.name, each.kind, f"{count:,}", str(each.segments), behind, why)
    console.print(table)
