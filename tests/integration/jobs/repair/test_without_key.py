"""Repairs of tables without a primary key: every row of the WAL counts."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.table import Table
from testkit.tables.native_regions import native_region_id

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
ROWS = [(1, "one"), (1, "one"), (2, "two")]


def _rows(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"a": a, "b": b} for a, b in rows], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """One generation of pylance with equal rows."""
    uri = str(tmp_path / "t")
    lance.write_dataset(SCHEMA.empty_table(), uri).initialize_mem_wal()
    with lance.dataset(uri).mem_wal_writer(str(native_region_id(1))) as writer:
        writer.put(_rows(*ROWS[:1]))
        writer.put(_rows(*ROWS[1:]))
    return Table.open(uri)


def _damage(table: Table) -> None:
    region_id = native_region_id(1)
    (flushed,) = table.opened.manifests.load(region_id).flushed_generations
    (file,) = (Path(table.uri) / "_mem_wal" / str(region_id) / flushed.path / "data").glob("*.lance")
    file.write_bytes(bytes(file.stat().st_size))


def _merged(table: Table) -> list[tuple[int, str]]:
    table.run(MergeRequest())
    return sorted((row["a"], row["b"]) for row in lance.dataset(table.uri).to_table().to_pylist())


def test_damaged_generation_is_written_anew_with_equal_rows(table: Table) -> None:
    """Repair and doctor refused: "the table defines no primary key"."""
    _damage(table)
    assert {each.finding_id for each in table.doctor().findings} >= {"generation-damaged"}
    report = table.run(RepairRequest(duplicates=True))
    assert report.outcome is JobOutcome.DONE, json.dumps(report.to_dict(), indent=1)
    assert not [each for each in table.doctor(contents=True).findings if each.severity.value == "critical"]
    assert _merged(table) == ROWS


def test_generation_without_wal_can_be_given_up(table: Table) -> None:
    _damage(table)
    for entry in (Path(table.uri) / "_mem_wal" / str(native_region_id(1)) / "wal").iterdir():
        entry.unlink()
    left = table.run(RepairRequest())
    assert left.outcome is JobOutcome.BLOCKED
    report = table.run(RepairRequest(accept_loss=(f"{native_region_id(1)}:1",)))
    assert report.outcome is JobOutcome.DONE
    assert _merged(table) == []


def test_sound_table_without_key_has_no_finding(table: Table) -> None:
    assert not [each for each in table.doctor(contents=True).findings if each.severity.value == "critical"]
    assert table.run(RepairRequest(duplicates=True)).outcome is JobOutcome.NOTHING_TO_DO
