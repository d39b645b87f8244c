"""What the watch says to Prometheus: pure functions from the state of the tables to its text format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from memwal_core.cli.serving import Samples, liveness
from memwal_core.fleet.deep_looks import DeepFindings
from memwal_core.observe.health import Health, Judgement

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "memwal_watch_tables": "Registered tables that are watched.",
        "memwal_watch_round_timestamp_seconds": "When the last round over all tables ended.",
        "memwal_watch_every_seconds": "Time between the beginnings of two rounds.",
        "memwal_watch_registry_readable": "Whether the registry could be read; if not, the tables before are watched.",
        "memwal_table_examined": "Whether the last examination of the table ended, and in time.",
        "memwal_table_examined_timestamp_seconds": "When the table was last examined.",
        "memwal_table_deep_examined": "Whether the newest deep look at the table ended, and in time.",
        "memwal_table_deep_examined_timestamp_seconds": "When the last deep look at the table ended.",
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

TABLE = "memwal_table"
SIGNAL = "memwal_signal"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of one table.

    Attributes:
        judgement: The last one that is known; None if there never was one.
        regions: How many it has.
        freezes: How many stop jobs of the table or of its regions.
        waiting_bytes: Of flushed MemTables that wait for a merge; None if its regions could not be read.
        problem: Why the last examination did not end; empty if it did.
        deep: What the last deep look found; None if there are none.
    """

    name: str
    judgement: Judgement | None = None
    regions: int = 0
    freezes: int = 0
    waiting_bytes: int | None = None
    examined: datetime | None = None
    problem: str = ""
    deep: DeepFindings | None = None

    @classmethod
    def of(cls, name: str, health: Health, examined: datetime) -> Watched:
        """Keep of a look what is told: all that was seen of hundreds of tables would take gigabytes."""
        record, status = health.seen.record, health.status
        return cls(
            name,
            health.judgement,
            regions=len(health.seen.regions),
            freezes=len(record.active) if record is not None else 0,
            waiting_bytes=status.merge_lag_bytes if status is not None else None,
            examined=examined,
        )

    @property
    def deep_problem(self) -> str:
        """Why nothing came of the newest deep look; empty if something did, or if there was no time yet."""
        return self.deep.problem if self.deep is not None else ""


@dataclass(frozen=True, slots=True)
class WatchedFleet:
    """All tables at one moment.

    Attributes:
        tables: In the order of the registry.
        round_ended: When all tables had been looked at; None before the first round.
        round_ended_s: The same in monotonic seconds.
        registry_problem: Why the registry cannot be read; empty if it can.
    """

    tables: tuple[Watched, ...] = ()
    round_ended: datetime | None = None
    round_ended_s: float | None = None
    registry_problem: str = ""


def exposition(fleet: WatchedFleet, every_s: float | None = None) -> str:
    """Return the state of all tables in Prometheus' text format, version 0.0.4; without rounds, no time between two."""
    samples = Samples({name: ("gauge", meaning) for name, meaning in METRICS.items()})
    samples.add("memwal_watch_tables", len(fleet.tables))
    samples.add("memwal_watch_registry_readable", not fleet.registry_problem)
    if every_s is not None:
        samples.add("memwal_watch_every_seconds", every_s)
    if fleet.round_ended is not None:
        samples.add("memwal_watch_round_timestamp_seconds", fleet.round_ended.timestamp())
    for table in fleet.tables:
        _add_table(samples, table)
    return samples.text()


def watch_health(fleet: WatchedFleet, now_s: float, every_s: float) -> dict[str, object]:
    """Return what ``/healthz`` says: healthy from the first round on, unless none has ended for three intervals."""
    return {
        **liveness("round", fleet.round_ended_s, now_s, every_s),
        "registry": fleet.registry_problem or "readable",
        "not_examined": {table.name: table.problem for table in fleet.tables if table.problem},
        "not_deeply_examined": {table.name: table.deep_problem for table in fleet.tables if table.deep_problem},
    }


def _add_table(samples: Samples, table: Watched) -> None:
    labels = {TABLE: table.name}
    samples.add("memwal_table_examined", not table.problem and table.judgement is not None, **labels)
    if table.examined is not None:
        samples.add("memwal_table_examined_timestamp_seconds", table.examined.timestamp(), **labels)
    if table.deep is not None:
        _add_deep(samples, table.deep, labels)
    found = table.judgement
    if found is None:
        return
    samples.add("memwal_table_level", found.level.severity, **labels)
    samples.add("memwal_table_regions", table.regions, **labels)
    samples.add("memwal_table_frozen", table.freezes, **labels)
    if table.waiting_bytes is not None:
        samples.add("memwal_merge_waiting_bytes", table.waiting_bytes, **labels)
    for finding_id, level, runbook in sorted(
        {(each.finding_id, each.severity.level.value, each.runbook) for each in found.findings}
    ):
        samples.add("memwal_finding", 1, **labels, finding=finding_id, level=level, runbook=runbook)
    for each in sorted(found.signals, key=lambda judged: judged.signal):
        named = {**labels, SIGNAL: each.signal.value}
        samples.add("memwal_signal_level", each.level.severity, **named)
        if each.value is not None:
            samples.add("memwal_signal_value", each.value, **named)


def _add_deep(samples: Samples, deep: DeepFindings, labels: Mapping[str, str]) -> None:
    if deep.problem or deep.seen_at is not None:
        samples.add("memwal_table_deep_examined", not deep.problem, **labels)
    if deep.seen_at is not None:
        samples.add("memwal_table_deep_examined_timestamp_seconds", deep.seen_at.timestamp(), **labels)
