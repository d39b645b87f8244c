"""The two addresses of the watch, over plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from memwal_core.cli.watch.exposition import WatchedFleet, exposition
from memwal_core.clock import Clock

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_LATE_ROUNDS = 3


def serve(
    host: str, port: int, fleet: Callable[[], WatchedFleet], *, clock: Clock, every_s: float
) -> ThreadingHTTPServer:
    """Return a server for ``/metrics`` and ``/healthz``; the caller runs it in a thread, and shuts it down.

    ``/healthz`` answers 503 before the first round, and when none has ended for three intervals.

    Raises:
        OSError: The address cannot be used.
    """

    def answer(path: str) -> tuple[int, str, str]:
        known = fleet()
        if path == "/metrics":
            return 200, _TEXT, exposition(known)
        if path != "/healthz":
            return 404, _TEXT, "see /metrics and /healthz\n"
        age_s = (clock.now() - known.round_ended).total_seconds() if known.round_ended is not None else None
        healthy = age_s is not None and age_s <= _LATE_ROUNDS * every_s
        body = {
            "healthy": healthy,
            "seconds_since_the_last_round": age_s,
            "registry": known.registry_problem or "readable",
            "not_examined": {table.name: table.problem for table in known.tables if table.problem},
        }
        return 200 if healthy else 503, "application/json", json.dumps(body, indent=2) + "\n"

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

    return ThreadingHTTPServer((host, port), Handler)
