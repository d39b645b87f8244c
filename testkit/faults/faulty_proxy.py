"""An HTTP proxy in front of an S3 server that breaks replies, requests and conditions."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any, ClassVar
from urllib.parse import urlsplit

from memwal_core.clock import SystemClock
from testkit.processes.start import start_process

_CONDITIONS = frozenset({"if-none-match", "if-match"})
_FORWARD_S = 300
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})

Request = tuple[str, str, dict[str, str]]
"""Method, path and lower-case headers."""


@dataclass
class Fault:
    """What happens to the next requests of a method.

    Attributes:
        method: HTTP method concerned.
        times: Requests left.
        status: Answer with this status instead of forwarding; None to forward.
        loses_reply: Forward, then close the connection without a reply.
        halves_reply: Forward, then answer with the first half of the body as if it were all.
        path: What the path contains.
    """

    method: str
    times: int
    status: int | None = None
    loses_reply: bool = False
    halves_reply: bool = False
    path: str = ""


class _Line:
    """What passes through the proxy, in the proxy's process.

    Attributes:
        target: The server behind it, as ``host:port``.
        ignores_conditions: See ``FaultyProxy``.
        delay_s: How long each request waits before it is forwarded.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.ignores_conditions = False
        self.delay_s = 0.0
        self._requests: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def ignore_conditions(self, ignores: bool) -> None:
        self.ignores_conditions = ignores

    def delay(self, seconds: float) -> None:
        self.delay_s = seconds

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def requests(self) -> list[Request]:
        with self._lock:
            return list(self._requests)

    def forget(self) -> None:
        with self._lock:
            self._requests.clear()
            self._faults.clear()

    def note(self, method: str, path: str, headers: dict[str, str]) -> Fault | None:
        """Record a request and return the fault that strikes it."""
        with self._lock:
            self._requests.append((method, path, headers))
            for fault in self._faults:
                if fault.method == method and fault.times > 0 and fault.path in path:
                    fault.times -= 1
                    return fault
        return None


class FaultyProxy:
    """Controls of a running proxy.

    Args:
        connection: To its process.

    Attributes:
        endpoint: Where clients connect.
    """

    def __init__(self, connection: Connection) -> None:
        """Wait until it runs."""
        self._connection = connection
        self.endpoint: str = connection.recv()

    def ignore_conditions(self) -> None:
        """Forward without ``If-None-Match`` and ``If-Match`` from now on, as servers do that do not know them."""
        self._ask("ignore_conditions", True)

    def delay(self, seconds: float) -> None:
        """Let each request wait from now on, side by side with others."""
        self._ask("delay", seconds)

    def answer(self, method: str, status: int, *, times: int = 1, path: str = "") -> None:
        """Answer the next requests of a method, for some paths, with an error; the server does not see them."""
        self._ask("add", Fault(method, times, status=status, path=path))

    def lose_reply(self, method: str, *, times: int = 1, path: str = "") -> None:
        """Forward the next requests of a method, for some paths, and let the client never hear of the result."""
        self._ask("add", Fault(method, times, loses_reply=True, path=path))

    def halve_reply(self, method: str, path: str, *, times: int = 1) -> None:
        """Answer the next requests of a method for some paths with half of the content, as if that were all."""
        self._ask("add", Fault(method, times, halves_reply=True, path=path))

    def requests(self) -> list[Request]:
        """Return all requests so far."""
        found: list[Request] = self._ask("requests")
        return found

    def count(self, method: str) -> int:
        """Return how many requests of a method arrived."""
        return sum(1 for seen, _, _ in self.requests() if seen == method)

    def forget(self) -> None:
        """Be as new: no request was seen, no fault is left."""
        self._ask("forget")
        self._ask("delay", 0.0)
        self._ask("ignore_conditions", False)

    def _ask(self, what: str, *arguments: object) -> Any:  # noqa: ANN401 - each call knows its answer
        self._connection.send((what, arguments))
        return self._connection.recv()


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    """Run a proxy on the loopback interface until the block ends.

    It has a process of its own, as ``s3_server`` has and for the same reason.

    Args:
        endpoint: The server behind it, as ``http://host:port``.
    """
    process, connection = start_process(_serve, urlsplit(endpoint).netloc, duplex=True)
    try:
        yield FaultyProxy(connection)
    finally:
        process.kill()
        process.join()
        connection.close()


def _serve(target: str, connection: Connection) -> None:
    """Run the proxy, say where, and do what is asked, until this process is killed or its parent is gone."""
    line = _Line(target)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"line": line}))
    threading.Thread(target=server.serve_forever, name="faulty-proxy", daemon=True).start()
    connection.send(f"http://127.0.0.1:{server.server_port}")
    with suppress(EOFError):
        while True:
            what, arguments = connection.recv()
            connection.send(getattr(line, what)(*arguments))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """With the usual 5, connections of a burst were dropped by the system, and waited seconds to be tried again."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Or a reply's body would wait 40 ms until its head is acknowledged."""
    line: ClassVar[_Line]

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        SystemClock().sleep(self.line.delay_s)
        fault = self.line.note(self.command, self.path, headers)
        if fault is not None and fault.status is not None:
            self._reply(fault.status, {}, b"")
            return
        if self.line.ignores_conditions:
            headers = {name: value for name, value in headers.items() if name not in _CONDITIONS}
        status, reply_headers, reply = _forward(self.line.target, self.command, self.path, headers, body)
        if fault is not None and fault.loses_reply:
            self.close_connection = True
            return
        if fault is not None and fault.halves_reply:
            reply = reply[: len(reply) // 2]
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
    connection = http.client.HTTPConnection(target, timeout=_FORWARD_S)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read()
    finally:
        connection.close()
