"""OpenTelemetry's SDK for processes of our own: jobs and commands. Airflow brings its own to its tasks.

Nothing is installed unless the environment names a collector, so nothing is sent by default.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from opentelemetry import context, metrics, propagate, trace

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT" for signal in ("", "METRICS_", "TRACES_"))
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SERVICE = "OTEL_SERVICE_NAME"
_FLUSH_MS = 5_000

_log = logging.getLogger(__name__)


@contextmanager
def telemetry(environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Send metrics and traces of a block, which is a whole process, to the collector that the environment names.

    The variables are OpenTelemetry's own: ``OTEL_EXPORTER_OTLP_ENDPOINT`` switches it on,
    ``OTEL_EXPORTER_OTLP_PROTOCOL`` is ``http/protobuf`` unless it says ``grpc``, and ``TRACEPARENT`` is
    the span that the process belongs to. A collector that does not answer costs a warning and a few
    seconds at the end, never the job.

    Args:
        environment: Variables; those of the process if None.
    """
    variables = os.environ if environment is None else environment
    if not any(variables.get(name) for name in _ENDPOINTS):
        yield
        return
    try:
        meters, tracers = _providers(variables)
    except ImportError as error:
        _log.warning("no telemetry is sent, because OpenTelemetry's SDK is not installed: %s", error)
        yield
        return
    parent = context.attach(propagate.extract({"traceparent": variables.get("TRACEPARENT", "")}))
    try:
        yield
    finally:
        context.detach(parent)
        for provider in (meters, tracers):
            provider.force_flush(_FLUSH_MS)
            provider.shutdown()


def child_variables() -> dict[str, str]:
    """Return the variables that make a child process continue the present trace; none outside of one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name.upper(): value for name, value in carrier.items() if name == "traceparent"}


def _providers(variables: Mapping[str, str]) -> tuple[MeterProvider, TracerProvider]:
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    kind = "grpc" if variables.get(_PROTOCOL) == "grpc" else "http"
    exporters = f"opentelemetry.exporter.otlp.proto.{kind}"
    send_metrics = import_module(f"{exporters}.metric_exporter").OTLPMetricExporter()
    send_spans = import_module(f"{exporters}.trace_exporter").OTLPSpanExporter()
    resource = Resource.create({} if variables.get(_SERVICE) else {SERVICE_NAME: "memwal"})
    meters = MeterProvider([PeriodicExportingMetricReader(send_metrics)], resource=resource, shutdown_on_exit=False)
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(send_spans))
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    return meters, tracers
