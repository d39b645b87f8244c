"""`memwal compact`: rewrite small and half deleted fragments of the base table."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.admin import CompactRequest
from memwal_core.cli.catchup import show_catchup
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json, show_bytes
from memwal_core.cli.recorded import run_recorded
from memwal_core.maintenance.compact import CleanupReport, CompactReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.outcome import JobOutcome


def compact(
    uri: TableUri,
    force: Annotated[
        bool, typer.Option("--force", help="Rewrite small neighbouring fragments however few they are.")
    ] = False,
    remove_versions: Annotated[
        bool, typer.Option("--remove-versions", help="Then remove old versions that nothing keeps.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Rewrite small and half deleted fragments, with the indexes caught up before and after.

    Exit codes: 0 done, 2 bad input, 3 nothing to do, 4 conflict or storage failure (try again),
    5 something needs somebody to look at it.
    """
    request = CompactRequest(force=force, remove_versions=remove_versions, dry_run=dry_run)
    admin = open_admin(uri, storage_option)
    report = run_recorded(admin, JobKey("compact"), request, admin.compact)
    if json:
        print_json(report.to_dict())
    else:
        _show(Console(highlight=False, soft_wrap=True), report, dry_run=dry_run)
    sys.exit(report.outcome.exit_code)


def _show(console: Console, report: CompactReport, *, dry_run: bool) -> None:
    plan = report.plan
    if report.outcome is JobOutcome.PLANNED and plan.take:
        console.print(
            f"would rewrite {len(plan.take)} of {plan.fragments} fragments in the first pass, {plan.rows:,} rows, "
            f"{show_bytes(plan.size_bytes)}, on version {plan.version}",
            markup=False,
        )
    else:
        console.print(
            f"{report.outcome.value.replace('_', ' ')}: {report.fragments_before} -> {report.fragments_after} "
            f"fragments in {len(report.rewrites)} commits, version {report.version_before} -> "
            f"{report.version_after}, {report.seconds:.2f} s",
            markup=False,
        )
    console.print(f"why: {report.reason or plan.verdict.value}", markup=False)
    if report.catchup_after is not None:
        show_catchup(console, report.catchup_after)
    if report.cleanup is not None:
        _show_cleanup(console, report.cleanup, dry_run=dry_run)


def _show_cleanup(console: Console, cleanup: CleanupReport, *, dry_run: bool) -> None:
    kept = ", ".join(f"{count} {why}" for why, count in cleanup.plan.counts().items())
    console.print(
        f"{'would remove' if dry_run else 'removed'} {cleanup.result.versions} versions and "
        f"{show_bytes(cleanup.result.size_bytes)}; kept {kept or 'none'}",
        markup=False,
    )
