"""Places for real tables: a local directory and an S3 server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from memwal_core.testing.s3_server import S3Server


@dataclass(frozen=True)
class Place:
    """Where a test's table goes."""

    uri: str
    storage_options: Mapping[str, str]


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


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(str(tmp_path / "my table"), {})
    running: S3Server = request.getfixturevalue("s3")
    return Place(running.uri(f"bucket/tables/{tmp_path.name}"), running.storage_options)
