"""Passing judged signals on to OpenTelemetry."""

from __future__ import annotations

from memwal_core.maintenance.signals.judge import SignalReport
from memwal_core.maintenance.status import TableStatus
from memwal_core.metrics import (
    MERGE_WAITING_BYTES,
    SIGNAL_LABEL,
    SIGNAL_LEVEL,
    SIGNAL_VALUE,
    TABLE_LABEL,
    Instruments,
)


def record_signals(instruments: Instruments, report: SignalReport, status: TableStatus | None = None) -> None:
    """Set the gauges of a table: value and level of every signal that was measured, and what waits.

    Args:
        instruments: Where to.
        report: The judged signals.
        status: The status behind them; None if the table is too damaged to have one.
    """
    for each in report.signals:
        if each.value is None:
            continue
        labels = {TABLE_LABEL: report.table_uri, SIGNAL_LABEL: each.signal.value}
        instruments.gauge(SIGNAL_VALUE, each.value, labels)
        instruments.gauge(SIGNAL_LEVEL, each.level.severity, labels)
    if status is not None:
        instruments.gauge(MERGE_WAITING_BYTES, status.merge_lag_bytes, {TABLE_LABEL: report.table_uri})
