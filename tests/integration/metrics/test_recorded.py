"""What jobs record, received by OpenTelemetry's own SDK."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memwal_core.errors import FencedError
from memwal_core.jobs.catchup.extend import CatchupContext
from memwal_core.jobs.catchup.run import catch_up
from memwal_core.jobs.compact.run import CompactContext, compact
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.job import gc_surveyor
from memwal_core.jobs.gc.run import GcContext, collect_garbage
from memwal_core.jobs.health import record_health
from memwal_core.jobs.merge.commit.passes import CommitContext
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.read.winners import InProcessReader
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.run import MergeContext, Silent, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.merge.work.workers import InProcessWorkers
from memwal_core.jobs.snapshot.run import SnapshotContext, build_region_snapshot
from memwal_core.metrics import Instruments
from memwal_core.settings import DAY_S, CatchupSettings, CompactSettings, MergeSettings, Settings
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


def merge_context(admin: Table, instruments: Instruments) -> MergeContext:
    table = admin.base
    return MergeContext(
        table=table,
        surveyor=MergeSurveyor(table, table.store, admin.opened.manifests, 4),
        in_process=SingleCommit(
            CommitContext(table, MergeSettings(), table.clock, table.rng),
            InProcessWorkers(table),
            InProcessReader(table.storage_options),
        ),
        settings=MergeSettings(),
        clock=table.clock,
        progress=Silent(),
        metrics=instruments,
    )


def test_merge_counts_what_it_did(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(table, [1, 3], [3, 4], name="new")
    parts = merge_context(Table.open(table.uri), received.instruments)

    report = merge(parts)
    merge(parts)

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

    merge(merge_context(Table.open(table.uri), received.instruments), dry_run=True)

    assert received.values() == {}
    assert received.spans() == []


def test_garbage_collection_counts_objects_by_kind(tmp_path: Path, received: Received) -> None:
    table = make_people_table(str(tmp_path / "t"), buckets=1)
    write_generations(table, [1], [2], name="new")
    Table.open(table.uri).run(MergeRequest())
    drop_old_versions(table.uri)
    context = JobContext(gc_admin(table.uri).opened)
    parts = GcContext(
        gc_surveyor(context), context.settings, context.clock, context.guard, metrics=received.instruments
    )

    report = collect_garbage(parts)

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
    parts = CatchupContext(table, CatchupSettings(), table.clock, table.rng, metrics=received.instruments)

    catch_up(parts, dry_run=True)
    assert received.values() == {}
    catch_up(parts)
    catch_up(parts)

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
    admin = Table.open(table.uri)
    parts = SnapshotContext(admin.base, admin.opened.manifests, Settings(), table.clock, metrics=received.instruments)

    report = build_region_snapshot(parts)
    build_region_snapshot(parts)

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
    clock = later(60 * DAY_S)
    catchup = CatchupContext(table, CatchupSettings(), clock, table.rng, metrics=received.instruments)
    settings = CompactSettings(keep_versions=1)

    report = compact(CompactContext(catchup, settings, lambda: ()), force=True, remove_versions=True)

    label, values = (("memwal.table", table.uri),), received.values()
    assert values["memwal.compact.fragments", label] == 3
    assert values["memwal.compact.fragments_written", label] == 1
    assert report.cleanup is not None
    assert values["memwal.compact.versions_removed", label] == report.cleanup.result.versions > 0
    assert values["memwal.compact.bytes_removed", label] == report.cleanup.result.size_bytes > 0
    assert received.runs()["compact", "done"] == 1
    assert received.spans() == ["memwal.catchup", "memwal.catchup", "memwal.compact"]
    assert received.parents() == {"memwal.catchup": "memwal.compact", "memwal.compact": None}


def test_run_that_ends_with_an_error_is_counted_and_its_span_has_the_error(tmp_path: Path, received: Received) -> None:
    table = make_articles_table(str(tmp_path / "t"), kinds=("BTREE",))
    merge_natively(table, articles(2000, 30), {native_region_id(1): 1})

    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        catch_up(CatchupContext(table, CatchupSettings(), table.clock, table.rng, lost, metrics=received.instruments))

    assert received.runs() == {("catchup", "failed"): 1}
    assert not [name for name, _ in received.values() if name == "memwal.job.duration"]
    assert received.errors() == ["FencedError"]
