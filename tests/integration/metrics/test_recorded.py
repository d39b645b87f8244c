"""What jobs record, received by OpenTelemetry's own SDK."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memwal_core.errors import FencedError, FrozenError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.runner import execute
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.metrics import Instruments
from memwal_core.observe.health import record_health
from memwal_core.settings import DAY_S, CompactSettings, Settings
from memwal_core.settings.status import StatusSettings
from memwal_core.table import Table
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import drop_old_versions, gc_admin, later, write_generations
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people


class Received:
    """An SDK of the test's own."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meter = MeterProvider([self._reader]).get_meter("test")
        self.instruments = Instruments(meter, tracers.get_tracer("test"))

    def values(self) -> dict[tuple[str, tuple[tuple[str, object], ...]], float]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            (metric.name, tuple(sorted(point.attributes.items()))): getattr(point, "value", getattr(point, "count", 0))
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }

    def spans(self) -> list[str]:
        return [span.name for span in self._spans.get_finished_spans()]

    def parents(self) -> dict[str, str | None]:
        """Span -> the span that it is inside of."""
        spans = self._spans.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans}
        return {span.name: names[span.parent.span_id] if span.parent is not None else None for span in spans}

    def errors(self) -> list[str]:
        """Classes of the errors that spans ended with."""
        events = [event for span in self._spans.get_finished_spans() for event in span.events]
        return [str(event.attributes["exception.type"]).rpartition(".")[2] for event in events]

    def runs(self) -> dict[tuple[str, str], float]:
        """(Job, outcome) -> runs."""
        counted = [
            (dict(labels), value) for (name, labels), value in self.values().items() if name == "memwal.job.runs"
        ]
        return {(str(labels["memwal.job"]), str(labels["outcome"])): value for labels, value in counted}


@pytest.fixture
def received() -> Received:
    return Received()


def test_merge_counts_what_it_did(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(table, [1, 3], [3, 4], name="new")
    opened = Table.open(table.uri).opened

    report = execute(opened, MergeRequest(), instruments=received.instruments)
    execute(opened, MergeRequest(), instruments=received.instruments)

    label = (("memwal.table", table.uri),)
    values = received.values()
    assert values["memwal.merge.rows", label] == 3
    assert values["memwal.merge.generations", label] == 2
    assert values["memwal.merge.commits", label] == 1
    assert values["memwal.merge.conflicts", label] == 0
    assert values["memwal.merge.bytes", label] == report.bytes_planned > 0
    runs = {dict(labels)["outcome"]: value for (name, labels), value in values.items() if name == "memwal.job.runs"}
    assert runs == {"done": 1, "nothing_to_do": 1}
    durations = [dict(labels) for name, labels in values if name == "memwal.job.duration"]
    assert all(set(labels) == {"memwal.job", "outcome"} for labels in durations)
    assert received.spans() == ["memwal.merge", "memwal.merge"]


def test_dry_run_counts_nothing(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=1)
    write_generations(table, [1], name="new")

    execute(Table.open(table.uri).opened, MergeRequest(dry_run=True), instruments=received.instruments)

    assert received.values() == {}
    assert received.spans() == []


def test_garbage_collection_counts_objects_by_kind(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=1)
    write_generations(table, [1], [2], name="new")
    Table.open(table.uri).run(MergeRequest())
    drop_old_versions(table.uri)

    report = execute(gc_admin(table.uri).opened, GcRequest(dry_run=False), instruments=received.instruments)

    counted = {
        dict(labels)["kind"]: value
        for (name, labels), value in received.values().items()
        if name == "memwal.gc.objects"
    }
    assert counted == {kind.value: tally.items for kind, tally in report.done.items()}
    assert counted
    assert received.spans() == ["memwal.gc"]


def test_signals_become_gauges(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=1)
    write_generations(table, [1], [2], [3], name="new")
    settings = Settings(status=StatusSettings(pending_generations_warn=2, pending_generations_page=4))

    record_health(received.instruments, Table.open(table.uri, settings=settings).health())

    values = received.values()
    label = (("memwal.signal", "pending_generations"), ("memwal.table", table.uri))
    assert values["memwal.signal.value", label] == 3
    assert values["memwal.signal.level", label] == 1
    assert values["memwal.merge.waiting_bytes", (("memwal.table", table.uri),)] > 0


def test_catch_up_counts_rows_and_what_became_of_each_index(tmp_path: Path, received: Received) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("BTREE", "BITMAP"))
    merge_natively(table, articles(2000, 30), {native_region_id(1): 1})
    opened = Table.open(table.uri).opened

    execute(opened, CatchupRequest(dry_run=True), instruments=received.instruments)
    assert received.values() == {}
    execute(opened, CatchupRequest(), instruments=received.instruments)
    execute(opened, CatchupRequest(), instruments=received.instruments)

    values = {(name, frozenset(dict(labels).items())): value for (name, labels), value in received.values().items()}
    for kind in ("BTree", "Bitmap"):
        labels = {("memwal.table", table.uri), ("kind", kind)}
        assert values["memwal.catchup.rows", frozenset(labels)] == 30
        assert values["memwal.catchup.indexes", frozenset({*labels, ("outcome", "extended")})] == 1
        assert values["memwal.catchup.indexes", frozenset({*labels, ("outcome", "none")})] == 1
    assert received.runs() == {("catchup", "done"): 1, ("catchup", "nothing_to_do"): 1}
    assert received.spans() == ["memwal.catchup", "memwal.catchup"]


def test_snapshot_counts_regions_and_hints(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=2)
    write_generations(table, list(range(20)), name="new")
    opened = Table.open(table.uri).opened

    report = execute(opened, SnapshotRequest(), instruments=received.instruments)
    execute(opened, SnapshotRequest(), instruments=received.instruments)

    label, values = (("memwal.table", table.uri),), received.values()
    assert values["memwal.snapshot.regions", label] == report.plan.regions == 2
    assert values["memwal.snapshot.hints", label] == len(report.hints_raised)
    assert values["memwal.snapshot.conflicts", label] == 0
    assert received.runs() == {("snapshot", "done"): 1, ("snapshot", "nothing_to_do"): 1}
    assert received.spans() == ["memwal.snapshot", "memwal.snapshot"]


def test_compaction_counts_fragments_and_versions_and_contains_its_catch_ups(
    tmp_path: Path, received: Received
) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=100, kinds=("BTREE",))
    for generation in (1, 2):
        merge_natively(table, articles(100 * generation, 100), {native_region_id(1): generation})
    settings = Settings(compact=CompactSettings(keep_versions=1))
    opened = OpenTable.at(table.uri, settings=settings, clock=later(60 * DAY_S))

    report = execute(opened, CompactRequest(force=True, remove_versions=True), instruments=received.instruments)

    label, values = (("memwal.table", table.uri),), received.values()
    assert values["memwal.compact.fragments", label] == 3
    assert values["memwal.compact.fragments_written", label] == 1
    assert report.cleanup is not None
    assert values["memwal.compact.versions_removed", label] == report.cleanup.result.versions > 0
    assert values["memwal.compact.bytes_removed", label] == report.cleanup.result.size_bytes > 0
    assert received.runs() == {("compact", "done"): 1}
    assert received.spans() == ["memwal.compact"]
    indexed = {dict(labels)["outcome"] for (name, labels) in values if name == "memwal.catchup.indexes"}
    assert "extended" in indexed, "its catch-ups count their indexes"


def test_run_that_ends_with_an_error_is_counted_and_its_span_has_the_error(tmp_path: Path, received: Received) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("BTREE",))
    merge_natively(table, articles(2000, 30), {native_region_id(1): 1})

    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        execute(Table.open(table.uri).opened, CatchupRequest(), guard=lost, instruments=received.instruments)

    assert received.runs() == {("catchup", "failed"): 1}
    assert not [name for name, _ in received.values() if name == "memwal.job.duration"]
    assert received.errors() == ["FencedError"]


def test_frozen_run_counts_as_frozen_and_a_cycle_counts_as_a_run(tmp_path: Path, received: Received) -> None:
    table = Table.open(make_people_table(str(tmp_path / "t"), buckets=1).uri)
    execute(table.opened, MaintainRequest(), instruments=received.instruments)
    table.freeze("a test", by="someone")
    with pytest.raises(FrozenError):
        execute(table.opened, MergeRequest(), instruments=received.instruments)

    assert received.runs()["merge", "frozen"] == 1
    assert ("merge", "failed") not in received.runs()
    assert received.runs()["maintain", "done"] == 1
