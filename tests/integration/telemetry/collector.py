"""A collector of the tests' own: takes metrics and spans over OTLP and HTTP, and keeps their names."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(ThreadingHTTPServer):
    """Takes what is sent to it.

    Attributes:
        metrics: Name -> service that sent it last.
        spans: Name -> trace that it belongs to.
        parents: Name of a span -> id of the span around it; empty for a first one.
        ids: Id of a span -> its name.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receive)
        self.metrics: dict[str, str] = {}
        self.spans: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                [service] = [
                    each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
                ]
                self.metrics |= {metric.name: service for scope in resource.scope_metrics for metric in scope.metrics}
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self.ids[span.span_id.hex()] = span.name
                    self.parents[span.name] = span.parent_span_id.hex()
                    self.spans[span.name] = span.trace_id.hex()


class Receive(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.take(self.path, body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for a block."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
