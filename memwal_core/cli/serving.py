"""What processes that go on and on offer over plain HTTP: metrics and their own health."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from memwal_core.errors import InvalidRequestError

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def serve(
    host: str, port: int, *, metrics: Callable[[], str], health: Callable[[], Mapping[str, object]]
) -> ThreadingHTTPServer:
    """Serve ``/metrics`` and ``/healthz`` from a thread until the caller shuts the server down.

    Args:
        host: Address to listen at.
        port: 0 takes a free one.
        metrics: In Prometheus' text format.
        health: ``/healthz`` shows it, and answers 503 unless its ``healthy`` is true.

    Raises:
        InvalidRequestError: The address cannot be used.
    """

    def answer(path: str) -> tuple[int, str, str]:
        if path == "/metrics":
            return 200, _TEXT, metrics()
        if path != "/healthz":
            return 404, _TEXT, "see /metrics and /healthz\n"
        found = health()
        return 200 if found["healthy"] else 503, "application/json", json.dumps(found, indent=2) + "\n"

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            code, kind, body = answer(self.path.partition("?")[0])
            data = body.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing for each request."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InvalidRequestError(
            "the address cannot be listened at", remedy="choose another --host or --port", host=host, port=port,
            problem=str(error),
        ) from error  # fmt: skip
    threading.Thread(target=server.serve_forever, name="memwal-http", daemon=True).start()
    return server
