"""What a writer counts arrives in OpenTelemetry, with labels that stay few."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from memwal_core.writer import RotationReason, stats
from memwal_core.writer.stats import Discarded, WriterMeters


def _points(reader: InMemoryMetricReader) -> dict[str, list]:
    (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


@pytest.mark.req("MEM-35", "MEM-36", "MEM-38")
def test_counters_and_gauges_arrive_and_only_gauges_carry_the_region() -> None:
    reader = InMemoryMetricReader()
    meters = WriterMeters("region-1", MeterProvider([reader]).get_meter(stats.METER_NAME))
    meters.count(stats.ROWS, 3)
    meters.count(stats.ROWS, 4)
    meters.rotated(RotationReason.AGE)
    meters.record(stats.FLUSH_DURATION, 0.5)
    meters.gauge(stats.QUEUED, 2)
    meters.discarded_rows(Discarded(3, 5, 7))
    points = _points(reader)
    assert [point.value for point in points[stats.ROWS]] == [7]
    assert [point.value for point in points[stats.FLUSH_DISCARDED_ROWS]] == [7]
    assert [dict(point.attributes) for point in points[stats.ROTATIONS]] == [{stats.REASON_LABEL: "age"}]
    assert [dict(point.attributes) for point in points[stats.FLUSH_DURATION]] == [{}]
    assert [(point.value, dict(point.attributes)) for point in points[stats.QUEUED]] == [
        (2, {stats.REGION_LABEL: "region-1"})
    ]
    assert meters.counts()[stats.ROTATIONS] == 1


def test_only_the_last_discards_are_remembered() -> None:
    meters = WriterMeters("r")
    for wal_id in range(1, 101):
        meters.discarded_rows(Discarded(wal_id, wal_id, 1))
    kept = meters.discarded()
    assert len(kept) < 100
    assert kept[-1].last_wal_id == 100
    assert meters.counts()[stats.FLUSH_DISCARDED_ROWS] == 100
