"""Passing judged signals on to OpenTelemetry."""

from __future__ import annotations

from memwal_core.maintenance.signals.judge import SignalReport
from memwal_core.metrics import SIGNAL_LABEL, SIGNAL_LEVEL, SIGNAL_VALUE, TABLE_LABEL, Instruments


def record_signals(instruments: Instruments, report: SignalReport) -> None:
    """Set the gauges of a table: value and level of every signal that was measured."""
    for each in report.signals:
        if each.value is None:
            continue
        labels = {TABLE_LABEL: report.table_uri, SIGNAL_LABEL: each.signal.value}
        instruments.gauge(SIGNAL_VALUE, each.value, labels)
        instruments.gauge(SIGNAL_LEVEL, each.level.severity, labels)
