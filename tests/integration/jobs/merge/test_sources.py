"""Reading generations: newest row of each key, deletes kept apart, in segments where asked."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.flushed.read import MergeTarget
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.read.winners import MergeWinners, RegionTask, read_region
from memwal_core.memtable.schema import memtable_schema
from testkit.pickling_executors import pickled

REGION = RegionId(uuid.UUID(int=1))
BASE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
TARGET = MergeTarget(BASE, {"id": 0, "v": 1}, ("id",))
ROWS = memtable_schema(BASE, ["id"])

Write = tuple[int, str | None]
"""A key and its value; None deletes it."""


def write(directory: Path, generations: list[list[Write]], *, rows_per_file: int = 1024) -> RegionTask:
    addresses = []
    for number, writes in enumerate(generations, start=1):
        rows = pa.table(
            {
                "id": [key for key, _ in writes],
                "v": [value for _, value in writes],
                "_tombstone": [v is None for _, v in writes],
            },
            schema=ROWS,
        )
        uri = str(directory / "t" / "_mem_wal" / str(REGION) / f"{uuid.uuid4().hex[:8]}_gen_{number}")
        lance.write_dataset(rows, uri, max_rows_per_file=rows_per_file)
        addresses.append((number, uri))
    return RegionTask(REGION, 0, tuple(addresses), TARGET)


def read(task: RegionTask) -> MergeWinners:
    return read_region(task, OpenedGenerations({}, most=0).take)


def as_dict(table: pa.Table) -> dict[int, str]:
    assert len(set(table.column("id").to_pylist())) == table.num_rows
    return dict(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


generations_strategy = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.text("xyz", max_size=2))), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)


@pytest.mark.req("MRG-01", "MRG-07", "MRG-09")
@given(generations_strategy)
@settings(derandomize=True, deadline=None, max_examples=40)
def test_winners_equal_a_dictionary_that_replays_every_write(tmp_path_factory, generations):
    task = write(tmp_path_factory.mktemp("g"), generations, rows_per_file=3)
    expected = {key: value for writes in generations for key, value in writes}

    winners = read(task)

    assert as_dict(winners.upserts) == {key: value for key, value in expected.items() if value is not None}
    assert sorted(winners.tombstones.column("id").to_pylist()) == sorted(k for k, v in expected.items() if v is None)
    assert winners.through == len(generations)
    assert winners.rows_read == sum(map(len, generations))


def test_rows_hidden_by_a_deletion_vector_take_no_part(tmp_path):
    task = write(tmp_path, [[(1, "old"), (2, "kept"), (1, "newer"), (3, "c")]])
    lance.dataset(task.generations[0][1]).delete("v = 'newer' OR id = 3")

    winners = read(task)

    assert as_dict(winners.upserts) == {1: "old", 2: "kept"}
    assert winners.rows_read == 2


def test_few_winners_of_a_large_generation_are_fetched_and_not_scanned(tmp_path):
    first = [(number, "old") for number in range(2000)]
    second = [(number, "new") for number in range(2000) if number % 100]
    task = write(tmp_path, [first, second], rows_per_file=300)
    lance.dataset(task.generations[0][1]).delete("id = 100")

    winners = read(task)

    expected = dict(first) | dict(second)
    del expected[100]
    assert as_dict(winners.upserts) == expected


def test_renamed_column_is_read_by_its_id(tmp_path):
    task = write(tmp_path, [[(1, "a")]])
    lance.dataset(task.generations[0][1]).alter_columns({"path": "v", "name": "w"})

    winners = read(task)

    assert as_dict(winners.upserts) == {1: "a"}
    assert winners.upserts.schema.equals(BASE)


def test_null_in_a_column_that_must_not_be_null_stops(tmp_path):
    strict = pa.schema([BASE.field("id"), pa.field("v", pa.string(), nullable=False)])
    task = write(tmp_path, [[(1, "a"), (2, "b")]])
    rows = pa.table({"id": [1], "v": pa.array([None], pa.string()), "_tombstone": [False]}, schema=ROWS)
    lance.write_dataset(rows, task.generations[0][1], mode="append")
    broken = RegionTask(REGION, 0, task.generations, MergeTarget(strict, TARGET.field_ids, ("id",)))

    with pytest.raises(CorruptionError) as raised:
        read(broken)

    assert raised.value.facts["column"] == "v"
    assert raised.value.facts["rows"] == 1


def test_generation_that_vanished_is_not_found(tmp_path):
    task = RegionTask(REGION, 0, ((1, str(tmp_path / "gone")),), TARGET)
    with pytest.raises(ObjectNotFoundError):
        read(task)


def test_task_reaches_another_process_whole(tmp_path):
    task = write(tmp_path, [[(1, "a")], [(2, None)]])
    assert pickled(task) == task
