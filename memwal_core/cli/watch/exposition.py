"""What the watch says to Prometheus: pure functions from the state of the tables to its text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from memwal_core.jobs.health import Health

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "memwal_watch_tables": "Registered tables that are watched.",
        "memwal_watch_round_timestamp_seconds": "When the last round over all tables ended.",
        "memwal_watch_registry_readable": "Whether the registry could be read; if not, the tables before are watched.",
        "memwal_table_examined": "Whether the last examination of the table ended, and in time.",
        "memwal_table_examined_timestamp_seconds": "When the table was last examined.",
        "memwal_table_level": "Worst of findings and signals: 0 ok, 1 warn, 2 page.",
        "memwal_table_frozen": "Freezes that stop jobs of the table or of its regions.",
        "memwal_table_regions": "Regions of the table.",
        "memwal_finding": "1 for each kind of finding that the table has, by its level and runbook.",
        "memwal_signal_value": "Worst value of a signal over all regions, in the signal's unit.",
        "memwal_signal_level": "Level of a signal: -1 unknown, 0 ok, 1 warn, 2 page.",
        "memwal_merge_waiting_bytes": "Recorded size of the flushed MemTables that wait for a merge.",
    }
)
"""Name -> meaning. All are gauges. Renaming one breaks the files in ``deploy`` and those of users."""

LATE_ROUNDS = 3
"""Intervals without a round after which a process counts as unhealthy."""

TABLE = "memwal_table"
SIGNAL = "memwal_signal"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of one table.

    Attributes:
        health: The last one that is known; None if there never was one.
        problem: Why the last examination did not end; empty if it did.
    """

    name: str
    health: Health | None = None
    examined: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WatchedFleet:
    """All tables at one moment.

    Attributes:
        tables: In the order of the registry.
        round_ended: When all tables had been looked at; None before the first round.
        registry_problem: Why the registry cannot be read; empty if it can.
    """

    tables: tuple[Watched, ...] = ()
    round_ended: datetime | None = None
    registry_problem: str = ""


class Samples:
    """Samples by metric: the format wants those of one metric together.

    Args:
        metrics: Name -> type and meaning, in the order in which they are told.
    """

    def __init__(self, metrics: Mapping[str, tuple[str, str]]) -> None:
        self._metrics = metrics
        self._lines: dict[str, list[str]] = {name: [] for name in metrics}

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add one sample of a metric."""
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        self._lines[name].append(f"{name}{{{shown}}} {value:.17g}" if shown else f"{name} {value:.17g}")

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._text())

    def _text(self) -> Iterator[str]:
        for name, samples in self._lines.items():
            kind, meaning = self._metrics[name]
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} {kind}"
            yield from samples


def exposition(fleet: WatchedFleet) -> str:
    """Return the state of all tables in Prometheus' text format, version 0.0.4."""
    samples = Samples({name: ("gauge", meaning) for name, meaning in METRICS.items()})
    samples.add("memwal_watch_tables", len(fleet.tables))
    samples.add("memwal_watch_registry_readable", not fleet.registry_problem)
    if fleet.round_ended is not None:
        samples.add("memwal_watch_round_timestamp_seconds", fleet.round_ended.timestamp())
    for table in fleet.tables:
        _add_table(samples, table)
    return samples.text()


def watch_health(fleet: WatchedFleet, now: datetime, every_s: float) -> dict[str, object]:
    """Return what ``/healthz`` says: healthy from the first round on, unless none has ended for three intervals."""
    age_s = (now - fleet.round_ended).total_seconds() if fleet.round_ended is not None else None
    return {
        "healthy": age_s is not None and age_s <= LATE_ROUNDS * every_s,
        "seconds_since_the_last_round": age_s,
        "registry": fleet.registry_problem or "readable",
        "not_examined": {table.name: table.problem for table in fleet.tables if table.problem},
    }


def _add_table(samples: Samples, table: Watched) -> None:
    labels = {TABLE: table.name}
    samples.add("memwal_table_examined", not table.problem and table.health is not None, **labels)
    if table.examined is not None:
        samples.add("memwal_table_examined_timestamp_seconds", table.examined.timestamp(), **labels)
    health = table.health
    if health is None:
        return
    samples.add("memwal_table_level", health.level.severity, **labels)
    samples.add("memwal_table_regions", len(health.seen.regions), **labels)
    record = health.seen.record
    samples.add("memwal_table_frozen", len(record.active) if record is not None else 0, **labels)
    if health.status is not None:
        samples.add("memwal_merge_waiting_bytes", health.status.merge_lag_bytes, **labels)
    for finding_id, level, runbook in sorted(
        {(each.finding_id, each.severity.level.value, each.runbook) for each in health.findings}
    ):
        samples.add("memwal_finding", 1, **labels, finding=finding_id, level=level, runbook=runbook)
    for each in sorted(health.signals, key=lambda judged: judged.signal):
        named = {**labels, SIGNAL: each.signal.value}
        samples.add("memwal_signal_level", each.level.severity, **named)
        if each.value is not None:
            samples.add("memwal_signal_value", each.value, **named)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
