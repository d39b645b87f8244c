"""`memwal snapshot`: publish a snapshot of all regions for readers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.admin import SnapshotRequest
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json
from memwal_core.cli.recorded import run_recorded
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.snapshot import SnapshotReport


def snapshot(
    uri: TableUri,
    force: Annotated[bool, typer.Option("--force", help="Publish even if nothing has changed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Publish a region snapshot, if there is anything new in it, and raise the regions' WAL hints.

    Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try again),
    5 a region cannot be read.
    """
    admin = open_admin(uri, storage_option)
    request = SnapshotRequest(force=force, dry_run=dry_run)
    report = run_recorded(admin, JobKey("snapshot"), request, admin.build_snapshot)
    if json:
        print_json(report.to_dict())
    else:
        _show(report)
    sys.exit(report.outcome.exit_code)


def _show(report: SnapshotReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    plan = report.plan
    form = "inside the table manifest" if plan.is_inline else "in a file of its own"
    if report.outcome is JobOutcome.PLANNED:
        console.print(
            f"would publish {plan.regions} regions {form}, {len(plan.changed)} of them changed, "
            f"and raise {len(plan.hints)} WAL hints, on version {plan.version}",
            markup=False,
        )
    else:
        console.print(
            f"{report.outcome.value.replace('_', ' ')}: {plan.regions} regions {form}, {len(plan.changed)} changed, "
            f"{len(report.hints_raised)} WAL hints raised, version {report.version_before} -> "
            f"{report.version_after}, {report.seconds:.2f} s",
            markup=False,
        )
    console.print(f"why: {report.reason or plan.reason.value}", markup=False)
    if report.hints_failed:
        console.print(f"{len(report.hints_failed)} WAL hints could not be raised, which does no harm", markup=False)
