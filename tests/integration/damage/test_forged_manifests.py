"""Manifests of flushed MemTables that say what Lance cannot take: it panics, and readers get an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.errors import MemwalError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from testkit.tables.generations import make_generation_table


@pytest.mark.parametrize(("stored", "forged"), [(b"double", b"dou\0le"), (b"score", b"sc\0re"), (b"score", b"name\0")])
def test_columns_that_lance_panics_at_are_damage_of_one_flushed_memtable(
    tmp_path: Path, stored: bytes, forged: bytes
) -> None:
    made = make_generation_table(str(tmp_path / "people.lance"), "ours")
    manifests = made.files("_versions")
    for path in (each for each in manifests if each.suffix == ".manifest"):
        data = path.read_bytes()
        assert stored in data
        path.unlink()
        path.write_bytes(data.replace(stored, forged))
    table = Table.open(made.table.uri)

    assert table.status().regions
    assert any(each.severity.value == "critical" for each in table.doctor().findings)
    with pytest.raises(MemwalError):
        table.to_arrow()
    assert table.run(MergeRequest(dry_run=True)).why()
