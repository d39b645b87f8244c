"""A real S3 server on the loopback interface."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "bucket"
_REGION = "us-east-1"


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


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an S3 server with one bucket (``bucket``) in this process until the block ends.

    It keeps its objects in memory and changes no environment variable. The request log of its
    HTTP library is silenced meanwhile.
    """
    request_log = logging.getLogger("werkzeug")
    level = request_log.level
    request_log.setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
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
        yield S3Server(endpoint, options)
    finally:
        server.stop()
        request_log.setLevel(level)
