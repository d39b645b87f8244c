"""The proof after a merge: it finds lost progress and repeated keys, and nothing else."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.base_table.key_counts import count_keys
from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter


@pytest.fixture
def merged(tmp_path: Path) -> tuple[TableAdmin, dict[RegionId, int]]:
    """A merged table, and how far the plan before the merge said it would come."""
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    admin = TableAdmin.open(table.uri)
    [batch] = admin.plan_merge(MergeRequest()).batches
    admin.merge()
    return admin, dict(batch.through)


def test_merged_table_is_proven(merged: tuple[TableAdmin, dict[RegionId, int]]) -> None:
    admin, through = merged

    proof = admin.verify_merge(through)

    assert proof.rows == 40
    assert proof.progress == through
    assert proof.version == admin.table.state().version


def test_progress_beyond_the_plan_is_right_as_well(merged: tuple[TableAdmin, dict[RegionId, int]]) -> None:
    admin, through = merged

    assert admin.verify_merge(dict.fromkeys(through, 0)).progress == through


def test_missing_progress_is_corruption(merged: tuple[TableAdmin, dict[RegionId, int]]) -> None:
    admin, through = merged
    region = min(through)

    with pytest.raises(CorruptionError, match="progress-lost") as found:
        admin.verify_merge({**through, region: 2})

    assert found.value.facts["recorded"] == {str(region): 1}
    assert found.value.facts["expected"] == {str(region): 2}


@pytest.mark.req("MRG-16")
def test_repeated_key_is_corruption_and_shown(merged: tuple[TableAdmin, dict[RegionId, int]]) -> None:
    admin, through = merged
    lance.write_dataset(people(7, 7, 13), admin.table.uri, mode="append")

    with pytest.raises(CorruptionError, match="duplicate-keys") as found:
        admin.verify_merge(through)

    assert (found.value.facts["rows"], found.value.facts["keys"]) == (43, 40)
    assert found.value.facts["sample"] == [{"id": 7, "copies": 3}, {"id": 13, "copies": 2}]


def test_planning_changes_nothing(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    version = table.state().version

    work = TableAdmin.open(table.uri).plan_merge(MergeRequest(max_bytes=1))

    assert [batch.generations for batch in work.batches] == [1, 1, 1, 1]
    assert table.state().version == version


def test_empty_table_has_no_repeated_keys(tmp_path: Path) -> None:
    counts = count_keys(make_people_table(str(tmp_path / "people.lance")).dataset(), ["id"])

    assert (counts.rows, counts.keys, counts.repeated) == (0, 0, ())


def test_key_columns_with_strange_names_are_counted(tmp_path: Path) -> None:
    rows = pa.table({'a "b" c': [1, 1, 2], "select": ["x", "y", "x"]})

    counts = count_keys(lance.write_dataset(rows, str(tmp_path / "t.lance")), ['a "b" c', "select"])

    assert (counts.rows, counts.keys) == (3, 3)
