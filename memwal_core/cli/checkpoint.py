"""`memwal checkpoint`: bring everything into the base table."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memwal_core.cli.job_command import show_report
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, DryRun, StorageOptions, TableUri, open_table
from memwal_core.cli.show import progress_shown
from memwal_core.ids import parse_region_id


@may_find_nothing
def checkpoint(
    uri: TableUri,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Only these regions. Repeatable.", metavar="UUID")
    ] = None,
    fence: Annotated[
        bool,
        typer.Option(
            "--fence",
            help="Take regions from writers that may be alive, too. They must be opened again; no acknowledged row is "
            "lost.",
        ),
    ] = False,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Flush and merge until nothing waits: every row that was written before is in the base table then.

    Exit codes: 0 done or planned, 2 bad input, 3 nothing waits, 4 rows wait with a writer that may be alive, another
    job runs, or a storage failure (try again), 5 a region needs a person, 6 damaged regions were left out,
    8 the table is frozen.
    """
    regions = [parse_region_id(each) for each in region or ()]
    table = open_table(uri, storage_option)
    with progress_shown("checkpoint", disable=json) as progress:
        report = table.checkpoint(regions=regions, fence=fence, dry_run=dry_run, progress=progress)
    show_report(table, uri, report, json=json, dry_run=dry_run, freezes=True)
    sys.exit(report.outcome.exit_code)
