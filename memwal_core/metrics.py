"""The metrics of the jobs, through the OpenTelemetry API, which does nothing until a process installs an SDK.

Every name is a constant here or, for writers, in ``memwal_core.writer.stats``; ``docs/metrics.md``
describes all of them. Histograms carry no table label, so that their number of series stays fixed.
Renaming a metric is a breaking change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from opentelemetry import metrics, trace

from memwal_core.errors import FrozenError

METER_NAME = "memwal_core"

JOB_RUNS = "memwal.job.runs"
JOB_DURATION = "memwal.job.duration"
FLUSH_REGIONS = "memwal.flush.regions"
FLUSH_ROWS = "memwal.flush.rows"
MERGE_ROWS = "memwal.merge.rows"
MERGE_BYTES = "memwal.merge.bytes"
MERGE_GENERATIONS = "memwal.merge.generations"
MERGE_COMMITS = "memwal.merge.commits"
MERGE_CONFLICTS = "memwal.merge.conflicts"
MERGE_WAITING_BYTES = "memwal.merge.waiting_bytes"
CATCHUP_ROWS = "memwal.catchup.rows"
CATCHUP_INDEXES = "memwal.catchup.indexes"
COMPACT_FRAGMENTS = "memwal.compact.fragments"
COMPACT_WRITTEN = "memwal.compact.fragments_written"
COMPACT_VERSIONS = "memwal.compact.versions_removed"
COMPACT_BYTES = "memwal.compact.bytes_removed"
SNAPSHOT_REGIONS = "memwal.snapshot.regions"
SNAPSHOT_HINTS = "memwal.snapshot.hints"
SNAPSHOT_CONFLICTS = "memwal.snapshot.conflicts"
GC_OBJECTS = "memwal.gc.objects"
GC_BYTES = "memwal.gc.bytes"
GC_FAILURES = "memwal.gc.failures"
SIGNAL_VALUE = "memwal.signal.value"
SIGNAL_LEVEL = "memwal.signal.level"

COUNTERS: Mapping[str, str] = {
    JOB_RUNS: "{run}",
    FLUSH_REGIONS: "{region}",
    FLUSH_ROWS: "{row}",
    MERGE_ROWS: "{row}",
    MERGE_BYTES: "By",
    MERGE_GENERATIONS: "{generation}",
    MERGE_COMMITS: "{commit}",
    MERGE_CONFLICTS: "{conflict}",
    CATCHUP_ROWS: "{row}",
    CATCHUP_INDEXES: "{index}",
    COMPACT_FRAGMENTS: "{fragment}",
    COMPACT_WRITTEN: "{fragment}",
    COMPACT_VERSIONS: "{version}",
    COMPACT_BYTES: "By",
    SNAPSHOT_REGIONS: "{region}",
    SNAPSHOT_HINTS: "{hint}",
    SNAPSHOT_CONFLICTS: "{conflict}",
    GC_OBJECTS: "{object}",
    GC_BYTES: "By",
    GC_FAILURES: "{failure}",
}
"""Name -> unit."""

HISTOGRAMS: Mapping[str, str] = {JOB_DURATION: "s"}
GAUGES: Mapping[str, str] = {MERGE_WAITING_BYTES: "By", SIGNAL_VALUE: "1", SIGNAL_LEVEL: "1"}

TABLE_LABEL = "memwal.table"
JOB_LABEL = "memwal.job"
OUTCOME_LABEL = "outcome"
KIND_LABEL = "kind"
SIGNAL_LABEL = "memwal.signal"

FAILED = "failed"
"""Outcome of a run that ended with an error instead of a report."""

FROZEN = "frozen"
"""Outcome of a run that did nothing because its table is frozen."""


class EndedJob(Protocol):
    """What the reports of all jobs have in common."""

    @property
    def outcome(self) -> StrEnum:
        """How the run ended."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took."""
        ...


Report = TypeVar("Report", bound=EndedJob)


class Instruments:
    """The instruments of the jobs. Cheap; safe to share between threads.

    Args:
        meter: Makes the instruments; the process's own if None.
        tracer: Makes spans; the process's own if None.
    """

    def __init__(self, meter: metrics.Meter | None = None, tracer: trace.Tracer | None = None) -> None:
        chosen = meter if meter is not None else metrics.get_meter(METER_NAME)
        self._tracer = tracer if tracer is not None else trace.get_tracer(METER_NAME)
        self._counters = {name: chosen.create_counter(name, unit=unit) for name, unit in COUNTERS.items()}
        self._histograms = {name: chosen.create_histogram(name, unit=unit) for name, unit in HISTOGRAMS.items()}
        self._gauges = {name: chosen.create_gauge(name, unit=unit) for name, unit in GAUGES.items()}

    def count(self, name: str, amount: int, labels: Mapping[str, str]) -> None:
        """Add to a counter; an amount of 0 makes its series visible."""
        self._counters[name].add(amount, labels)

    def gauge(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Set a gauge."""
        self._gauges[name].set(value, labels)

    def job_ended(self, job: str, table: str, outcome: str, seconds: float) -> None:
        """Count a run of a job and how long it took."""
        self._counters[JOB_RUNS].add(1, {JOB_LABEL: job, TABLE_LABEL: table, OUTCOME_LABEL: outcome})
        self._histograms[JOB_DURATION].record(seconds, {JOB_LABEL: job, OUTCOME_LABEL: outcome})

    def observe(self, job: str, table: str, work: Callable[[], Report]) -> Report:
        """Run a job inside its span, count the run and return its report.

        If ``work`` raises, the run counts as ``failed``, or as ``frozen`` if its table is, and the span records the
        error. ``table`` is the base table's address.
        """
        with self.span(job, table):
            try:
                report = work()
            except Exception as error:
                outcome = FROZEN if isinstance(error, FrozenError) else FAILED
                self._counters[JOB_RUNS].add(1, {JOB_LABEL: job, TABLE_LABEL: table, OUTCOME_LABEL: outcome})
                raise
        self.job_ended(job, table, report.outcome.value, report.seconds)
        return report

    def span(self, job: str, table: str) -> AbstractContextManager[Any]:
        """Return a span named ``memwal.<job>`` that lasts as long as the context."""
        return self._tracer.start_as_current_span(f"memwal.{job}", attributes={TABLE_LABEL: table})


INSTRUMENTS = Instruments()
"""The instruments of the process. An SDK that is installed later receives what is recorded from then on."""
