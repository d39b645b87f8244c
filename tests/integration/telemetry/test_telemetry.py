"""Metrics and traces of real processes, received by a collector of the test's own over OTLP and HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opentelemetry import context, trace

import memwal_core
from memwal_core.base_table import BaseTable
from memwal_core.telemetry import child_variables, telemetry
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people
from tests.integration.telemetry.collector import Collector, collecting

ROOT = Path(memwal_core.__file__).parents[1]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    with TableWriter.open(made) as writer:
        writer.put(people(3, 4))
        writer.flush()
    return made


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.run(
        arguments, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=500
    )


def test_job_sends_its_metrics_and_continues_the_trace_of_its_task(collector: Collector, table: BaseTable) -> None:
    ended = run(
        sys.executable, "jobs/snapshot.py", json.dumps({"uri": table.uri}),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address, OTEL_SERVICE_NAME="nightly", TRACEPARENT=PARENT,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    assert collector.metrics["memwal.job.runs"] == "nightly"
    assert collector.metrics["memwal.job.duration"] == "nightly"
    assert collector.spans["memwal.snapshot"] == TRACE


def test_check_sends_every_signal_that_it_measured(collector: Collector, table: BaseTable) -> None:
    ended = run("memwal", "status", table.uri, "--check", OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert collector.metrics["memwal.signal.value"] == "memwal"
    assert collector.metrics["memwal.merge.waiting_bytes"] == "memwal"


def test_nothing_is_sent_and_no_sdk_is_loaded_unless_a_collector_is_named(table: BaseTable) -> None:
    code = (
        "import sys; from memwal_core.telemetry import telemetry\n"
        "with telemetry({}): assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]"
    )

    assert run(sys.executable, "-c", code).returncode == 0
    with telemetry({}):
        assert child_variables() == {}


def test_collector_that_does_not_answer_does_not_fail_the_job(table: BaseTable) -> None:
    ended = run(
        sys.executable, "jobs/snapshot.py", json.dumps({"uri": table.uri}),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr


def test_child_process_gets_the_present_span() -> None:
    span = trace.NonRecordingSpan(
        trace.SpanContext(int(TRACE, 16), 0xB7AD6B7169203331, is_remote=True, trace_flags=trace.TraceFlags(1))
    )
    token = context.attach(trace.set_span_in_context(span))
    try:
        assert child_variables() == {"TRACEPARENT": PARENT}
    finally:
        context.detach(token)
