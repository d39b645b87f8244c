"""Keys on their way from one process to another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError
from memwal_core.ids import IdSource
from memwal_core.jobs.merge.work.staged_keys import KeyStager, StagedKeys, files_of_other_attempts
from memwal_core.storage import open_store


def test_staged_keys_come_back(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    part = KeyStager(store, "staged", IdSource())(pa.table({"id": [1, 2]}), [])
    assert StagedKeys(store)(part).to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize("length", [0, 40])
def test_a_damaged_file_of_staged_keys_is_named(tmp_path: Path, length: int) -> None:
    """Arrow's own error came through, without the file's name."""
    store = open_store(str(tmp_path))
    part = KeyStager(store, "staged", IdSource())(pa.table({"id": [1, 2]}), [])
    assert part.path is not None
    (tmp_path / part.path).write_bytes((tmp_path / part.path).read_bytes()[:length])
    with pytest.raises(CorruptionError) as caught:
        StagedKeys(store)(part)
    assert caught.value.facts["path"] == part.path
    with pytest.raises(CorruptionError):
        list(files_of_other_attempts(store, "staged", ()))
