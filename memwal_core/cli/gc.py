"""`memwal gc`: delete what nobody needs any more, or show what that would be."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from memwal_core.admin import GcRequest
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_admin, print_json, show_bytes
from memwal_core.cli.recorded import run_recorded
from memwal_core.ids import parse_region_id
from memwal_core.maintenance.gc import GcReport, Item
from memwal_core.maintenance.jobs import JobKey

_SHOWN = 20


def gc(
    uri: TableUri,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Only this region; repeatable.", metavar="UUID")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Do it; without this option the plan is shown.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the grace period of what this run removes from manifests.")
    ] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Collect garbage: show what is free, and with --delete remove it.

    Exit codes: 0 done or planned, 2 bad input or unsafe retention, 3 nothing to do, 4 something
    failed (run it again), 5 something is frozen and needs somebody to look at it.
    """
    regions = {parse_region_id(text) for text in region} if region else None
    admin = open_admin(uri, storage_option)
    request = GcRequest(regions=regions, dry_run=not delete, wait=wait)
    report = run_recorded(admin, JobKey("gc"), request, admin.collect_garbage)
    if json:
        print_json(report.to_dict())
    else:
        _show(report, planned=not delete)
    sys.exit(report.outcome.exit_code)


def _show(report: GcReport, *, planned: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    did = "would drain or delete" if planned else "drained or deleted"
    tallies = report.plan.free_by_kind() if planned else report.done
    console.print(f"{report.outcome.value.replace('_', ' ')}: version {report.plan.version}", markup=False)
    table = Table()
    for name in ("kind", did, "bytes", "stays, and why"):
        table.add_column(name, overflow="fold")
    held = report.plan.held_by_gate()
    for kind in sorted({*tallies, *held}):
        gates = ", ".join(f"{tally.items} {gate}" for gate, tally in held.get(kind, {}).items())
        tally = tallies.get(kind)
        items, size = (str(tally.items), show_bytes(tally.size_bytes)) if tally is not None else ("0", "")
        table.add_row(kind.value.replace("_", " "), items, size, gates)
    console.print(table)
    for item in report.plan.free[:_SHOWN]:
        console.print(_line(item), markup=False)
    if len(report.plan.free) > _SHOWN:
        console.print(f"and {len(report.plan.free) - _SHOWN} more; --json lists every object", markup=False)
    for note in _notes(report):
        console.print(note, markup=False)


def _line(item: Item) -> str:
    evidence = f" ({item.evidence})" if item.evidence else ""
    return f"{item.action} {item.path}: {item.reason.value}{evidence}"


def _notes(report: GcReport) -> list[str]:
    freezes = report.plan.freezes
    notes = [f"frozen table: {freezes.table}"] if freezes.table else []
    notes += [f"frozen region {region_id}: {reason}" for region_id, reason in freezes.regions.items()]
    notes += [f"failed {failure.path}: {failure.error}" for failure in report.failures]
    return [*notes, *report.notes]
