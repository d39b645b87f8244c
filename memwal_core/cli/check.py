"""`memwal status --check`: every signal against its thresholds."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from memwal_core.admin import GcRequest, TableAdmin
from memwal_core.cli.options import print_json
from memwal_core.maintenance.signals import (
    SIGNALS,
    JudgedSignal,
    SignalParts,
    SignalReport,
    judge_signals,
    measure_signals,
    record_signals,
)
from memwal_core.metrics import INSTRUMENTS
from memwal_core.settings import Settings


def check_signals(admin: TableAdmin, settings: Settings, *, json: bool) -> None:
    """Print every signal, the worst first, and end the process with the worst one's code.

    Raises:
        SystemExit: Always: 0 all is well, 6 something warns, 7 somebody must act now.
    """
    table = admin.table
    insight, measures_garbage = admin.insight, settings.status.measure_garbage
    parts = SignalParts(
        table=table,
        manifests=admin.manifests,
        ledger=insight.ledger,
        leases=insight.leases,
        clock=table.clock,
        concurrency=settings.storage.concurrency,
        plan_garbage=(lambda: admin.collect_garbage(GcRequest(dry_run=True)).plan) if measures_garbage else None,
    )
    measured = measure_signals(parts)
    report = judge_signals(table.uri, measured.readings, settings.status)
    record_signals(INSTRUMENTS, report, measured.status)
    if json:
        print_json(report.to_dict())
    else:
        _show(report)
    sys.exit(report.level.exit_code)


def _show(report: SignalReport) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{report.table_uri}: {report.level.value}", markup=False)
    table = Table()
    for name in ("signal", "level", "value", "warn", "page", "where", "runbook"):
        table.add_column(name, overflow="fold")
    for each in report.signals:
        table.add_row(*_cells(each))
    console.print(table)


def _cells(judged: JudgedSignal) -> list[str]:
    facts = SIGNALS[judged.signal]
    value = "-" if judged.value is None else f"{judged.value:g} {facts.unit}"
    return [
        judged.signal.value,
        judged.level.value,
        value,
        f"{judged.warn:g}",
        f"{judged.page:g}",
        judged.subject,
        facts.page,
    ]
