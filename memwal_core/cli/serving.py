"""What processes that go on and on offer over plain HTTP: metrics and their own health."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from memwal_core.errors import InvalidRequestError

_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_LATE_ROUNDS = 3
"""Intervals without a round after which a process counts as unhealthy."""


class Samples:
    """Samples by metric: the format wants those of one metric together.

    Args:
        metrics: Name -> type and meaning, in the order in which they are told.
    """

    def __init__(self, metrics: Mapping[str, tuple[str, str]]) -> None:
        self._metrics = metrics
        self._lines: dict[str, list[str]] = {name: [] for name in metrics}

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add one sample of a metric."""
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        self._lines[name].append(f"{name}{{{shown}}} {value:.17g}" if shown else f"{name} {value:.17g}")

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._text())

    def _text(self) -> Iterator[str]:
        for name, samples in self._lines.items():
            kind, meaning = self._metrics[name]
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} {kind}"
            yield from samples


def liveness(round_name: str, ended_s: float | None, now_s: float, every_s: float) -> dict[str, object]:
    """Return ``healthy`` and the seconds since the last round ended, None before the first; times are monotonic."""
    age_s = now_s - ended_s if ended_s is not None else None
    healthy = age_s is not None and age_s <= _LATE_ROUNDS * every_s
    return {"healthy": healthy, f"seconds_since_the_last_{round_name}": age_s}


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


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
