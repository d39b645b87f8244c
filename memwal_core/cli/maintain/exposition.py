"""What the service says to Prometheus and to whoever asks for its health: pure functions of its state."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from memwal_core.cli.serving import Samples, liveness
from memwal_core.cli.watch.exposition import TABLE

if TYPE_CHECKING:
    from memwal_core.fleet import ServiceState

METRICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "memwal_maintain_tables": ("gauge", "Registered tables that are maintained."),
        "memwal_maintain_working": ("gauge", "Tables whose cycles run or wait for their turn."),
        "memwal_maintain_look_timestamp_seconds": (
            "gauge",
            "When all but silent tables were last asked if they are due.",
        ),
        "memwal_maintain_every_seconds": ("gauge", "Time between the beginnings of two looks."),
        "memwal_maintain_registry_readable": ("gauge", "Whether the registry could be read."),
        "memwal_maintain_table_problem": ("gauge", "Whether the table, or its last cycle, needs somebody or a repeat."),
        "memwal_maintain_table_timestamp_seconds": ("gauge", "When the last cycle of the table ended."),
        "memwal_maintain_table_seconds": ("gauge", "What the last cycle of the table took."),
        "memwal_maintain_cycles_total": ("counter", "Cycles of the table since the service began, by their end."),
    }
)
"""Name -> type and meaning."""


def exposition(state: ServiceState, every_s: float | None = None) -> str:
    """Return the state in Prometheus' text format, version 0.0.4."""
    samples = Samples(METRICS)
    samples.add("memwal_maintain_tables", len(state.tables))
    samples.add("memwal_maintain_working", len(state.working))
    if every_s is not None:
        samples.add("memwal_maintain_every_seconds", every_s)
    samples.add("memwal_maintain_registry_readable", not state.registry_problem)
    if state.looked is not None:
        samples.add("memwal_maintain_look_timestamp_seconds", state.looked.timestamp())
    for name, table in state.tables.items():
        if table.last is not None or table.survey_failure is not None:
            samples.add("memwal_maintain_table_problem", table.problem is not None, **{TABLE: name})
        if table.last is not None and table.ended is not None:
            samples.add("memwal_maintain_table_timestamp_seconds", table.ended.timestamp(), **{TABLE: name})
            samples.add("memwal_maintain_table_seconds", table.last.seconds, **{TABLE: name})
        for end, count in sorted(table.cycles.items()):
            samples.add("memwal_maintain_cycles_total", count, **{TABLE: name, "end": end})
    return samples.text()


def service_health(state: ServiceState, now_s: float, every_s: float) -> dict[str, object]:
    """Return what ``/healthz`` says: healthy while looks go on, whatever is wrong with tables; times are monotonic."""
    return {
        **liveness("answer", state.progressed_s, now_s, every_s),
        "registry": state.registry_problem or "readable",
        "working": list(state.working),
        "problems": {name: table.problem.why for name, table in state.tables.items() if table.problem is not None},
    }
