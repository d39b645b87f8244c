"""An S3 server for catch-up and its neighbours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from memwal_core.testing.s3_server import S3Server

SERVER = """
import json, sys
from memwal_core.testing.s3_server import s3_server
with s3_server() as running:
    print(json.dumps([running.endpoint, dict(running.storage_options)]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """Run the server in a process of its own: some calls of pylance wait for it without letting go of the GIL."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        endpoint, options = json.loads(child.stdout.readline())
        yield S3Server(endpoint, options)
        child.stdin.close()
