"""A real S3 server on the loopback interface."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import create_backend_app
from moto.server import ThreadedMotoServer

from testkit.processes.start import start_process

BUCKET = "bucket"
_REGION = "us-east-1"

_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class S3Server:
    """Where the server is and how to reach it.

    Attributes:
        endpoint: ``http://127.0.0.1:port``.
        storage_options: What ``open_store`` and pylance take.
    """

    endpoint: str
    storage_options: Mapping[str, str] = field(repr=False)

    def uri(self, path: str) -> str:
        """Return the address of ``bucket/path``; the bucket that exists is ``bucket``."""
        return f"s3://{path}"

    def environment(self) -> dict[str, str]:
        """Return the variables with which another process reaches the server without options."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": self.storage_options["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": self.storage_options["aws_secret_access_key"],
            "AWS_REGION": _REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


class _OneConditionAtATime:
    """Makes conditional writes atomic, as S3 does; moto alone lets two racing ones both win.

    Args:
        application: The server's WSGI application.
    """

    def __init__(self, application: _Application) -> None:
        """Keep the application."""
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if not {"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"} & environ.keys():
            return self._application(environ, start_response)
        with self._lock:
            return list(self._application(environ, start_response))


def _serve(connection: Connection) -> None:
    """Run the server, say where and with which options, until this process is killed or its parent is gone."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    running = server._server  # noqa: SLF001 - moto offers no other way to its application
    assert running is not None  # noqa: S101 - ``start`` returns when it runs
    # Without moto's search for the service of each request, which takes longer than the answer.
    running.app = _OneConditionAtATime(create_backend_app("s3"))
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    options = {
        "aws_endpoint": endpoint,
        "allow_http": "true",
        "aws_access_key_id": "test-key",
        "aws_secret_access_key": "test-secret",
        "aws_region": _REGION,
    }
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=_REGION,
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()
    connection.send((endpoint, options))
    with suppress(EOFError):
        connection.recv()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an S3 server with one bucket (``bucket``) until the block ends.

    It keeps its objects in memory, and runs in a process of its own: some of pylance's calls wait
    for the reply without letting go of the interpreter's lock, so that a server in the same
    process could never answer.
    """
    process, connection = start_process(_serve, duplex=True)
    try:
        endpoint, options = connection.recv()
        yield S3Server(endpoint, options)
    finally:
        process.kill()
        process.join()
        connection.close()
