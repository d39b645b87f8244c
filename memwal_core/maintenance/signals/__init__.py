"""Signals for monitoring and for people on call: measured, compared with thresholds, each with a runbook.

Owns no state. May import every other maintenance package but insight and what lies below.
"""

from memwal_core.maintenance.signals.jobs import (
    DUPLICATES_FACT,
    MEMORY_LIMIT_FACT,
    MERGED_BYTES_FACT,
    PEAK_MEMORY_FACT,
    VERIFY,
)
from memwal_core.maintenance.signals.judge import JudgedSignal, Level, Reading, SignalReport, judge_signals
from memwal_core.maintenance.signals.measure import Measured, SignalParts, measure_signals
from memwal_core.maintenance.signals.record import record_signals
from memwal_core.maintenance.signals.signal import SIGNALS, Signal, SignalFacts

__all__ = [
    "DUPLICATES_FACT",
    "MEMORY_LIMIT_FACT",
    "MERGED_BYTES_FACT",
    "PEAK_MEMORY_FACT",
    "SIGNALS",
    "VERIFY",
    "JudgedSignal",
    "Level",
    "Measured",
    "Reading",
    "Signal",
    "SignalFacts",
    "SignalParts",
    "SignalReport",
    "judge_signals",
    "measure_signals",
    "record_signals",
]
