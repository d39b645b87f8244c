"""Tables are worked on with versions of pylance that this package was proven with, unless a person says otherwise."""

from __future__ import annotations

import tomllib
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.native.lance_version import BEFORE, FIRST
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
ALLOWED = Settings(storage=StorageSettings(unproven_lance=True))


@pytest.mark.parametrize("version", ["13.9.9", "14.1.0", "14.1.0-beta.3", "15.0.0", "114.0.2"])
def test_other_versions_open_and_make_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    uri = str(tmp_path / "t.lance")
    table = Table.create(uri, SCHEMA, key="id", buckets=1)
    monkeypatch.setattr(lance, "__version__", version)

    for attempt in (lambda: Table.open(uri), lambda: Table.create(uri + "2", SCHEMA, key="id", buckets=1)):
        with pytest.raises(InvalidRequestError, match=r'pip install "pylance>=14\.0\.0,<14\.1"') as refused:
            attempt()
        assert refused.value.facts["found"] == version
    assert not Path(uri + "2").exists()
    assert Table.open(uri, settings=ALLOWED).uri == table.uri


def test_later_releases_of_a_proven_line_are_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance, "__version__", "14.0.17")
    assert Table.create(str(tmp_path / "t.lance"), SCHEMA, key="id", buckets=1).count() == 0


def test_pip_is_told_the_same() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    first, before = (".".join(map(str, version)) for version in (FIRST, BEFORE))
    assert f"pylance>={first},<{before}" in project["project"]["dependencies"]
