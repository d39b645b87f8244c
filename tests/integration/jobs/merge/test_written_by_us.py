"""Merging zero-copy generations that our own writer made, on tables of every shape."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import Settings, StorageSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import PEOPLE, make_people_table, people

FAST = Settings(storage=StorageSettings(fsync=False))


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def write_history(uri: str, table) -> dict[int, str]:
    """Write three rounds of generations; return what must remain."""
    with TableWriter.open(table.with_settings(FAST)) as writer:
        writer.put(people(*range(0, 60), name="first"))
        writer.put(people(*range(50, 70), name="again"))
        writer.flush()
        writer.delete(keys(1, 55, 999))
        writer.put(people(*range(10, 20), name="second"))
        writer.flush()
        writer.put(people(1, 200, name="back"))
        writer.delete(keys(12))
        writer.flush()
    expected = dict.fromkeys(range(60), "first") | dict.fromkeys(range(50, 70), "again")
    expected |= dict.fromkeys(range(10, 20), "second") | {1: "back", 200: "back"}
    return {key: name for key, name in expected.items() if key not in {12, 55}} | {500: "p500"}


def rows(uri: str) -> dict[int, str]:
    table = lance.dataset(uri).to_table()
    ids = table.column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, table.column("name").to_pylist(), strict=True))


@pytest.mark.req("MRG-01", "MRG-05", "MRG-09")
@pytest.mark.parametrize("dropped", [(), ("x", "y")], ids=["ids-without-gaps", "ids-with-gaps"])
def test_regions_of_our_writer_merge_to_the_written_history(tmp_path: Path, dropped):
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(500, 55), settings=FAST, dropped_columns=dropped)
    expected = write_history(uri, table)

    report = Table.open(uri, settings=FAST).run(MergeRequest())

    assert report.outcome is JobOutcome.DONE
    assert rows(uri) == expected


def test_renamed_column_merges_under_its_new_name(tmp_path: Path):
    uri = str(tmp_path / "t")
    table = make_people_table(uri, settings=FAST)
    with TableWriter.open(table) as writer:
        writer.put(people(1, 2, name="written"))
        writer.flush()
    lance.dataset(uri).alter_columns({"path": "name", "name": "title"})

    Table.open(uri, settings=FAST).run(MergeRequest())

    assert lance.dataset(uri).to_table().column("title").to_pylist() == ["written", "written"]
