"""Compare measurements with the thresholds: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from memwal_core.ids import RegionId
from memwal_core.observe.findings import Finding, Level, Severity
from memwal_core.observe.signals.signal import SIGNALS, Signal
from memwal_core.settings.status import StatusSettings, Thresholds
from memwal_core.text import show_number


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value.

    Attributes:
        value: In the signal's unit; None if it could not be measured, and the evidence says why.
        subject: On what, for example a region or an index; empty for the whole table.
        region_id: The region, if it was measured on one.
        remedy: What is to be done; empty: what the signal says.
    """

    signal: Signal
    value: float | None
    subject: str = ""
    region_id: RegionId | None = None
    evidence: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class JudgedSignal:
    """A signal with its worst value.

    Attributes:
        reading: The highest value, or what could not be measured; None if there was nothing to measure.
    """

    signal: Signal
    reading: Reading | None
    warn: float
    page: float

    @property
    def value(self) -> float | None:
        """The highest value; None if it was not measured."""
        return None if self.reading is None else self.reading.value

    @property
    def subject(self) -> str:
        """Where it was found; empty for the whole table."""
        return "" if self.reading is None else self.reading.subject

    @property
    def level(self) -> Level:
        """How urgent it is."""
        if self.value is None:
            return Level.UNKNOWN
        return Level.PAGE if self.value >= self.page else Level.WARN if self.value >= self.warn else Level.OK

    @property
    def score(self) -> int:
        """100 at nothing, below 80 from the warning on, below 50 from the page on; 0 if rows may be wrong or lost."""
        if self.reading is not None and self.value is None:
            return _UNREADABLE
        if self.value is None or self.value <= 0:
            return 100
        if self.signal in _AT_ONCE:
            return 0
        if self.value < self.warn:
            return max(80, round(100 - 20 * self.value / self.warn))
        if self.value < self.page:
            return max(50, round(79 - 29 * (self.value - self.warn) / (self.page - self.warn)))
        return int(49 * self.page / self.value)

    def finding(self, found: Collection[str] = ()) -> Finding | None:
        """Return what is to be done; None if it is well, or if the findings that it counts say so themselves.

        What could not be measured warns: what cannot be read often keeps a job from running. ``found`` has the names of
        the doctor's findings: what a job met, and the doctor does not see, is told here.
        """
        facts = SIGNALS[self.signal]
        if self.reading is None or self.level is Level.OK or facts.findings & set(found):
            return None
        said = "cannot be measured" if self.value is None else f"{show_number(self.value)} {facts.unit}"
        return Finding(
            facts.name,
            Severity.CRITICAL if self.level is Level.PAGE else Severity.WARNING,
            f"{said}: {facts.meaning}",
            {
                "subject": self.subject,
                "value": self.value,
                "warn": self.warn,
                "page": self.page,
                **self.reading.evidence,
            },
            facts.risk,
            self.reading.remedy or facts.remedy,
            self.reading.region_id,
            facts.page,
        )

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


_UNREADABLE = 65
"""Score of what could not be measured: that of a warning."""

_AT_ONCE = frozenset({Signal.CHECK_FAILED, Signal.DUPLICATE_KEYS}) | {
    signal for signal, facts in SIGNALS.items() if facts.findings
}
"""These mean that rows may be wrong or lost, so one is enough, and no setting changes that."""


def thresholds_of(signal: Signal, settings: StatusSettings) -> Thresholds:
    """Return the values from which a measured signal warns and pages."""
    return Thresholds(1.0, 1.0) if signal in _AT_ONCE else settings.thresholds()[signal.value]


def judge_signals(readings: Iterable[Reading], settings: StatusSettings) -> tuple[JudgedSignal, ...]:
    """Judge each signal by its worst reading, never by an average; return all signals, the worst first.

    A signal of which a part could not be measured is unknown, unless what was measured warns or pages.
    """
    found: dict[Signal, list[Reading]] = {signal: [] for signal in SIGNALS}
    for reading in readings:
        found[reading.signal].append(reading)
    judged = [_judged(signal, found[signal], settings) for signal in SIGNALS]
    return tuple(sorted(judged, key=lambda each: -each.level.severity))


def _judged(signal: Signal, readings: Sequence[Reading], settings: StatusSettings) -> JudgedSignal:
    thresholds = thresholds_of(signal, settings)
    measured = [each for each in readings if each.value is not None]
    worst = max(measured, key=lambda each: each.value or 0.0, default=None)
    unmeasured = next((each for each in readings if each.value is None), None)
    judged = JudgedSignal(signal, worst, *thresholds)
    return judged if unmeasured is None or judged.level.severity > 0 else JudgedSignal(signal, unmeasured, *thresholds)
