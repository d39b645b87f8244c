"""An object store that refuses every request, and quotes it in its answer, as stores and proxies do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

_S3_TOKEN = "x-amz-security-token"  # noqa: S105 - the header's name


@dataclass
class QuotingServer:
    """Where it listens, and what it was asked.

    Attributes:
        endpoint: Its address.
        status: What it answers with.
        requests: Request lines and headers as they came.
    """

    endpoint: str
    status: int = 400
    requests: list[str] = field(default_factory=list)


@contextmanager
def quoting_server() -> Iterator[QuotingServer]:
    """Serve on a free port."""
    answers = QuotingServer("")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            quoted = f"{self.requestline} " + " ".join(f"{name}: {value}" for name, value in self.headers.items())
            answers.requests.append(quoted)
            token = self.headers.get(_S3_TOKEN, "")
            body = (
                f"<Error><Code>InvalidToken</Code><Token-0>{escape(token)}</Token-0>"
                f"<Request>{escape(quoted)}</Request></Error>"
            ).encode()
            self.send_response(answers.status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answers.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="quoting-server", daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
