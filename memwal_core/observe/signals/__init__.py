"""Signals for monitoring and for people on call: measured, compared with thresholds, each with a runbook.

Owns no state. May import every other maintenance package but ``insight`` and what lies below.
"""

from memwal_core.observe.signals.judge import JudgedSignal, Reading, judge_signals
from memwal_core.observe.signals.measure import measure_signals
from memwal_core.observe.signals.signal import SIGNALS, SPACE_SIGNALS, Signal, SignalFacts

__all__ = [
    "SIGNALS",
    "SPACE_SIGNALS",
    "JudgedSignal",
    "Reading",
    "Signal",
    "SignalFacts",
    "judge_signals",
    "measure_signals",
]
