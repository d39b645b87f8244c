"""An HTTP proxy in front of an S3 server that breaks replies, requests and conditions."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

_CONDITIONS = frozenset({"if-none-match", "if-match"})
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})


@dataclass
class Fault:
    """What happens to the next requests of a method.

    Attributes:
        method: HTTP method concerned.
        times: Requests left.
        status: Answer with this status instead of forwarding; None to forward.
        loses_reply: Forward, then close the connection without a reply.
    """

    method: str
    times: int
    status: int | None = None
    loses_reply: bool = False


@dataclass
class FaultyProxy:
    """Controls of a running proxy.

    Attributes:
        endpoint: Where clients connect.
        ignores_conditions: Forward without ``If-None-Match`` and ``If-Match``, as servers do that
            do not know them.
        requests: Method, path and lower-case headers of all requests so far.
    """

    endpoint: str
    ignores_conditions: bool = False
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, status: int, *, times: int = 1) -> None:
        """Answer the next requests of a method with an error; the server does not see them."""
        with self._lock:
            self._faults.append(Fault(method, times, status=status))

    def lose_reply(self, method: str, *, times: int = 1) -> None:
        """Forward the next requests of a method, and let the client never hear of the result."""
        with self._lock:
            self._faults.append(Fault(method, times, loses_reply=True))

    def note(self, method: str, path: str, headers: dict[str, str]) -> Fault | None:
        """Record a request and return the fault that strikes it."""
        with self._lock:
            self.requests.append((method, path, headers))
            for fault in self._faults:
                if fault.method == method and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def count(self, method: str) -> int:
        """Return how many requests of a method arrived."""
        with self._lock:
            return sum(1 for seen, _, _ in self.requests if seen == method)


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    """Run a proxy on the loopback interface until the block ends.

    Args:
        endpoint: The server behind it, as ``http://host:port``.
    """
    target = urlsplit(endpoint).netloc
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = FaultyProxy(f"http://127.0.0.1:{server.server_port}")
    _Handler.routes[server.server_port] = (target, proxy)
    thread = threading.Thread(target=server.serve_forever, name="faulty-proxy", kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del _Handler.routes[server.server_port]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    routes: ClassVar[dict[int, tuple[str, FaultyProxy]]] = {}

    def _handle(self) -> None:
        target, proxy = self.routes[int(self.connection.getsockname()[1])]
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = proxy.note(self.command, self.path, headers)
        if fault is not None and fault.status is not None:
            self._reply(fault.status, {}, b"")
            return
        if proxy.ignores_conditions:
            headers = {name: value for name, value in headers.items() if name not in _CONDITIONS}
        status, reply_headers, reply = _forward(target, self.command, self.path, headers, body)
        if fault is not None and fault.loses_reply:
            self.close_connection = True
            return
        self._reply(status, reply_headers, reply)

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        # The length that a HEAD request asks for is the object's, not the empty body's.
        length = headers.get("content-length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("content-length", length)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


def _forward(
    target: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(target, timeout=30)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read()
    finally:
        connection.close()
