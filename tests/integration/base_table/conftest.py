"""Places for real tables: a local directory and an S3 server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.s3_server import S3Server


@dataclass(frozen=True)
class Place:
    """Where a test's table goes."""

    uri: str
    storage_options: Mapping[str, str]


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(str(tmp_path / "my table"), {})
    running: S3Server = request.getfixturevalue("s3")
    return Place(running.uri(f"bucket/tables/{tmp_path.name}"), running.storage_options)
