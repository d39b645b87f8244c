"""The proof after a merge: it finds lost progress and repeated keys, and nothing else."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table.keys.counts import count_keys
from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Piece
from memwal_core.jobs.merge.job import MergeJob
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.verify import verify_merge
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people


def through_of(piece: Piece) -> dict[RegionId, int]:
    """Return how far a piece of work promises to merge its regions."""
    promised = piece.promise["through"]
    assert isinstance(promised, dict)
    return {parse_region_id(region): generation for region, generation in promised.items()}


@pytest.fixture
def merged(tmp_path: Path) -> tuple[Table, dict[RegionId, int]]:
    """A merged table, and how far the plan before the merge said it would come."""
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    admin = Table.open(table.uri)
    [piece] = MergeJob().divide(JobContext(admin.opened), MergeRequest()).pieces
    admin.run(MergeRequest())
    return admin, through_of(piece)


def test_merged_table_is_proven(merged: tuple[Table, dict[RegionId, int]]) -> None:
    admin, through = merged

    proof = verify_merge(admin.base, through)

    assert proof.rows == 40
    assert proof.progress == through
    assert proof.version == admin.base.state().version


def test_progress_beyond_the_plan_is_right_as_well(merged: tuple[Table, dict[RegionId, int]]) -> None:
    admin, through = merged

    assert verify_merge(admin.base, dict.fromkeys(through, 0)).progress == through


def test_missing_progress_is_corruption(merged: tuple[Table, dict[RegionId, int]]) -> None:
    admin, through = merged
    region = min(through)

    with pytest.raises(CorruptionError, match="progress-lost") as found:
        verify_merge(admin.base, {**through, region: 2})

    assert found.value.facts["recorded"] == {str(region): 1}
    assert found.value.facts["expected"] == {str(region): 2}


@pytest.mark.req("MRG-16")
def test_repeated_key_is_corruption_and_shown(merged: tuple[Table, dict[RegionId, int]]) -> None:
    admin, through = merged
    lance.write_dataset(people(7, 7, 13), admin.base.uri, mode="append")

    with pytest.raises(CorruptionError, match="duplicate-keys") as found:
        verify_merge(admin.base, through)

    assert (found.value.facts["rows"], found.value.facts["keys"]) == (43, 40)
    assert found.value.facts["sample"] == [{"id": 7, "copies": 3}, {"id": 13, "copies": 2}]


def test_planning_changes_nothing(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    version = table.state().version

    pieces = MergeJob().divide(JobContext(Table.open(table.uri).opened), MergeRequest(max_bytes=1)).pieces

    assert [list(through_of(piece).values()) for piece in pieces] == [[1], [1], [1], [1]]
    assert table.state().version == version


def test_empty_table_has_no_repeated_keys(tmp_path: Path) -> None:
    counts = count_keys(make_people_table(str(tmp_path / "people.lance")).dataset(), ["id"])

    assert (counts.rows, counts.keys, counts.repeated) == (0, 0, ())


def test_key_columns_with_strange_names_are_counted(tmp_path: Path) -> None:
    rows = pa.table({'a "b" c': [1, 1, 2], "select": ["x", "y", "x"]})

    counts = count_keys(lance.write_dataset(rows, str(tmp_path / "t.lance")), ['a "b" c', "select"])

    assert (counts.rows, counts.keys) == (3, 3)
