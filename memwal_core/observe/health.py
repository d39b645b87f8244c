"""The one judge of health: what the doctor finds and what the signals measure, as one list of findings.

The page's score and colour, the level and exit code of ``memwal status --check`` and those of ``memwal doctor`` all
come from here, so they cannot contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.metrics import MERGE_WAITING_BYTES, SIGNAL_LABEL, SIGNAL_LEVEL, SIGNAL_VALUE, TABLE_LABEL, Instruments
from memwal_core.observe.doctor import Examination, Examiner, command_for, look_twice
from memwal_core.observe.findings import Finding, HealthVerdict, Level, Severity, ordered
from memwal_core.observe.signals import (
    SIGNALS,
    SPACE_SIGNALS,
    JudgedSignal,
    Reading,
    Signal,
    judge_signals,
    measure_signals,
)
from memwal_core.observe.status import TableStatus
from memwal_core.settings.status import StatusSettings

_SCORES = {Severity.CRITICAL: 0, Severity.WARNING: 65, Severity.INFO: 100}
"""Of what the doctor finds; a signal scores by its value."""

_COLOURS = {Level.OK: "good", Level.WARN: "fair", Level.PAGE: "bad"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a table, or one of its regions, is, without what was seen of each region.

    Attributes:
        damage: What the doctor found: broken invariants, and what people should know of.
        signals: Every signal with its worst reading, the worst first; ``unknown`` if it was not measured.
        findings: The damage, and the signals that warn or page; the most urgent first.
    """

    table_uri: str
    damage: tuple[Finding, ...]
    readings: tuple[Reading, ...] = field(repr=False)
    settings: StatusSettings = field(repr=False)
    signals: tuple[JudgedSignal, ...] = field(init=False)
    findings: tuple[Finding, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Judge."""
        signals = judge_signals(self.readings, self.settings)
        found = {each.finding_id for each in self.damage}
        late = [finding for each in signals if (finding := each.finding(found)) is not None]
        late = [replace(each, command=command_for(each, self.table_uri)) for each in late]
        object.__setattr__(self, "signals", signals)
        object.__setattr__(self, "findings", ordered([*self.damage, *late]))

    @property
    def level(self) -> Level:
        """The level of the most urgent finding or signal."""
        found = [*(each.severity.level for each in self.findings), *(each.level for each in self.signals)]
        return max([Level.OK, *found], key=lambda level: level.severity)

    @property
    def score(self) -> int:
        """0 to 100, for sorting: at least 80 exactly if the level is ok, below 50 exactly if it is page."""
        return min([100, *(_SCORES[each.severity] for each in self.damage), *(each.score for each in self.signals)])

    @property
    def colour(self) -> str:
        """Return ``good``, ``fair`` or ``bad``."""
        return _COLOURS[self.level]

    @property
    def unknown(self) -> tuple[Signal, ...]:
        """Signals that were not measured, or had nothing to be measured on."""
        return tuple(each.signal for each in self.signals if each.level is Level.UNKNOWN)

    @property
    def space(self) -> tuple[Reading, ...]:
        """What was measured by listing every object: garbage, and what is kept."""
        return tuple(each for each in self.readings if each.signal in SPACE_SIGNALS)

    def including(self, damage: Iterable[Finding], space: Iterable[Reading] = ()) -> Self:
        """Return the same with what another look found and measured, as far as this one did not."""
        known = {each.identity for each in self.damage}
        measured = {each.signal for each in self.readings}
        return replace(
            self,
            damage=(*self.damage, *(each for each in damage if each.identity not in known)),
            readings=(*self.readings, *(each for each in space if each.signal not in measured)),
        )

    def value(self, signal: Signal) -> float | None:
        """Return the worst value of a signal; None if it was not measured."""
        return next(each.value for each in self.signals if each.signal is signal)


@dataclass(frozen=True, slots=True)
class Health(Judgement):
    """The same with everything that was seen."""

    seen: Examination = field(repr=False)

    @property
    def judgement(self) -> Judgement:
        """What can be kept of each of hundreds of tables: of each signal only the worst reading."""
        worst = tuple(each.reading for each in self.signals if each.reading is not None)
        return Judgement(self.table_uri, self.damage, worst, self.settings)

    @property
    def healthy(self) -> bool:
        """Whether no operator has to act on this MemWAL table."""
        return self.level is Level.OK and not self.seen.is_plain

    @property
    def verdict(self) -> HealthVerdict:
        """Whether it is healthy; a table that MemWAL was never enabled on is neither healthy nor ill."""
        if self.seen.is_plain:
            return HealthVerdict.NOT_MEMWAL
        return HealthVerdict.HEALTHY if self.healthy else HealthVerdict.NEEDS_OPERATOR

    @property
    def status(self) -> TableStatus | None:
        """The regions whose manifests can be read; None if the MemWAL index cannot be read."""
        return self.seen.status

    def of_region(self, region_id: RegionId) -> Health:
        """Return the same for one region: what was found and measured on it."""
        return replace(
            self,
            damage=tuple(each for each in self.damage if each.region_id == region_id),
            readings=tuple(each for each in self.readings if each.region_id == region_id),
        )

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        seen = self.seen
        legacy = seen.legacy[-1] if seen.legacy else None
        return {
            "table_uri": self.table_uri,
            "version": seen.state.version if seen.state is not None else None,
            "level": self.level.value,
            "healthy": self.healthy,
            "verdict": self.verdict.value,
            "score": self.score,
            "deep": seen.deep,
            "findings": [each.to_dict() for each in self.findings],
            "signals": [each.to_dict() for each in self.signals],
            "regions": len(seen.regions),
            "facts": self.facts(),
            "legacy": [each.to_dict() for each in legacy.mem_wals] if legacy is not None else None,
        }

    def facts(self) -> dict[str, object]:
        """Return what only a deep look counts; empty if it was not deep."""
        seen = self.seen
        if not seen.deep:
            return {}
        codecs = Counter(suffix.removeprefix(".") for region in seen.regions for suffix in region.wal)
        return {
            "recorded_generations": sum(len(region.generations) for region in seen.regions),
            "wal_entries": sum(len(region.wal_ids) for region in seen.regions),
            "wal_codecs": dict(codecs),
            "region_bytes": sum(region.size_bytes for region in seen.regions),
            "retained_versions": len(seen.retained),
            "keys_sampled": sum(region.keys.num_rows for region in seen.regions if region.keys is not None),
            "base_files": seen.base_files.files,
            "base_rows_read": seen.base_files.rows_read,
        }


def examine(
    opened: OpenTable,
    *,
    deep: bool,
    garbage: GcPlan | None = None,
    contents: bool = False,
    progress: Progress = unwatched,
) -> Health:
    """Examine a table and judge it. Nothing is changed.

    Args:
        opened: The table.
        deep: Whether to list every object, open every flushed MemTable, compare keys and learn what every retained
            version says; otherwise it takes a few requests per region, in a table of many
            per region that has changed.
        garbage: The plan of a collection; None leaves garbage unmeasured.
        contents: With ``deep``, also read every row of the base table and of unmerged flushed MemTables, and the
            manifests of all versions, those included that a collection remembers.
        progress: Is told how many files were looked at.

    Raises:
        InvalidRequestError: MemWAL was never enabled on the table, and the look is not deep.
    """
    seen, found = look_twice(Examiner(opened, deep=deep, contents=contents, progress=progress))
    if seen.is_plain and seen.state is not None and not deep:
        seen.state.require_details()
    damage = _with_runbooks(found, opened.uri)
    readings = measure_signals(opened, seen, damage, garbage)
    return Health(opened.uri, damage, readings, opened.settings.status, seen)


def record_health(instruments: Instruments, health: Health) -> None:
    """Set the gauges of a table: value and level of every signal that was measured, and what waits."""
    for each in health.signals:
        if each.value is None:
            continue
        labels = {TABLE_LABEL: health.table_uri, SIGNAL_LABEL: each.signal.value}
        instruments.gauge(SIGNAL_VALUE, each.value, labels)
        instruments.gauge(SIGNAL_LEVEL, each.level.severity, labels)
    if health.status is not None:
        instruments.gauge(MERGE_WAITING_BYTES, health.status.merge_lag_bytes, {TABLE_LABEL: health.table_uri})


def _with_runbooks(findings: Iterable[Finding], uri: str) -> tuple[Finding, ...]:
    pages = {name: facts.page for facts in SIGNALS.values() for name in facts.findings}
    return tuple(
        replace(each, runbook=pages.get(each.finding_id, each.runbook), command=command_for(each, uri))
        for each in findings
    )
