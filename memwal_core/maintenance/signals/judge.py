"""Comparing what was measured with the thresholds: a pure function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.maintenance.signals.signal import SIGNALS, Signal
from memwal_core.status_settings import StatusSettings


class Level(StrEnum):
    """How bad a signal is."""

    OK = "ok"
    WARN = "warn"
    PAGE = "page"

    @property
    def severity(self) -> int:
        """From 0, higher is worse."""
        return list(Level).index(self)

    @property
    def exit_code(self) -> int:
        """Exit code of ``memwal status --check`` when this is the worst level."""
        return _EXIT_CODES[self]


_EXIT_CODES = {Level.OK: 0, Level.WARN: 6, Level.PAGE: 7}


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value.

    Attributes:
        signal: What was measured.
        value: In the signal's unit.
        subject: On what, for example a region or an index; empty for the whole table.
    """

    signal: Signal
    value: float
    subject: str = ""


@dataclass(frozen=True, slots=True)
class JudgedSignal:
    """A signal with its worst value.

    Attributes:
        signal: Which.
        level: How bad.
        value: The highest value; None if there was nothing to measure.
        subject: Where it was found.
        warn: Value from which it warns.
        page: Value from which it pages.
    """

    signal: Signal
    level: Level
    value: float | None
    subject: str
    warn: float
    page: float

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        facts = SIGNALS[self.signal]
        return {
            "signal": self.signal.value,
            "level": self.level.value,
            "value": self.value,
            "unit": facts.unit,
            "subject": self.subject,
            "warn": self.warn,
            "page": self.page,
            "meaning": facts.meaning,
            "runbook": facts.page,
        }


@dataclass(frozen=True, slots=True)
class SignalReport:
    """All signals that the status measures, the worst first.

    Attributes:
        table_uri: The base table.
        signals: One per signal.
    """

    table_uri: str
    signals: tuple[JudgedSignal, ...]

    @property
    def level(self) -> Level:
        """The worst level."""
        return max((each.level for each in self.signals), key=lambda level: level.severity, default=Level.OK)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "table_uri": self.table_uri,
            "level": self.level.value,
            "signals": [each.to_dict() for each in self.signals],
        }


_AT_ONCE = frozenset(
    {
        Signal.GENERATION_HOLE,
        Signal.PROGRESS_LOST,
        Signal.CORRUPT_MANIFEST,
        Signal.CHECK_FAILED,
        Signal.DUPLICATE_KEYS,
    }
)
"""These say that rows may be wrong or lost: one is enough, and no setting changes that."""


def thresholds_of(signal: Signal, settings: StatusSettings) -> tuple[float, float]:
    """Return the values from which a measured signal warns and pages."""
    if signal in _AT_ONCE:
        return 1.0, 1.0
    thresholds = settings.thresholds()[signal.value]
    return thresholds.warn, thresholds.page


def judge_signals(table_uri: str, readings: Iterable[Reading], settings: StatusSettings) -> SignalReport:
    """Judge each measured signal by its worst reading, never by an average.

    Args:
        table_uri: The base table.
        readings: In any order; a signal without any is fine.
        settings: The thresholds.
    """
    worst: dict[Signal, Reading] = {}
    for reading in readings:
        if reading.signal not in worst or reading.value > worst[reading.signal].value:
            worst[reading.signal] = reading
    judged = [_judged(signal, worst.get(signal), settings) for signal in SIGNALS]
    return SignalReport(table_uri, tuple(sorted(judged, key=lambda each: -each.level.severity)))


def _judged(signal: Signal, reading: Reading | None, settings: StatusSettings) -> JudgedSignal:
    warn, page = thresholds_of(signal, settings)
    if reading is None:
        return JudgedSignal(signal, Level.OK, None, "", warn, page)
    level = Level.PAGE if reading.value >= page else Level.WARN if reading.value >= warn else Level.OK
    return JudgedSignal(signal, level, reading.value, reading.subject, warn, page)
