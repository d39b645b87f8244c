"""Finding and deleting the base rows that have one of many keys, fragments side by side."""

from __future__ import annotations

from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table.commit import superseding
from memwal_core.base_table.commit.row_changes import (
    DeletionTarget,
    count_repeated,
    describe_fragments,
    update_operation,
)
from memwal_core.base_table.commit.superseding import KeyScan, supersede
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.errors import CorruptionError
from memwal_core.storage import open_store

KEYS = {
    "integers": lambda numbers: {"id": pa.array(numbers, pa.int64())},
    "texts": lambda numbers: {"id": pa.array([f"key {number * 7919 % 1000}" for number in numbers])},
    "composite": lambda numbers: {
        "a": pa.array([n % 3 for n in numbers], pa.int32()),
        "b": pa.array(map(str, numbers)),
    },
}
FRAGMENTS = 5
ROWS = 20


def rows(kind, numbers):
    return pa.table(KEYS[kind](list(numbers)))


def table_of(path, kind):
    for at in range(FRAGMENTS):
        made = rows(kind, range(at * ROWS, (at + 1) * ROWS)).append_column(
            "n", pa.array(range(at * ROWS, (at + 1) * ROWS))
        )
        dataset = lance.write_dataset(made, path, mode="append" if at else "create")
    dataset.delete("n % 10 = 3")
    return lance.dataset(path)


def superseded(path, dataset, kind, numbers, rounds=1, condition=""):
    names = list(KEYS[kind]([0]))
    searches = [KeySearch(rows(kind, part.tolist()), names) for part in np.array_split(np.array(numbers), rounds)]
    target = DeletionTarget(open_store(str(path)), "attempt")
    scan = KeyScan(names, condition, concurrency=4)
    return list(supersede(dataset, describe_fragments(dataset), searches, scan, target))


def left(path, dataset, changes):
    made = lance.LanceDataset.commit(str(path), update_operation(dataset, changes, ()), read_version=dataset.version)
    made.validate()
    return sorted(made.to_table(columns=["n"]).column("n").to_pylist())


@pytest.mark.parametrize("group_rows", [1, 45, 1 << 23])
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("kind", KEYS)
def test_rows_go_whose_key_is_given_and_no_others(tmp_path, monkeypatch, kind, rounds, group_rows):
    monkeypatch.setattr(superseding, "_GROUP_ROWS", group_rows)
    dataset = table_of(tmp_path, kind)
    before = dataset.to_table().column("n").to_pylist()
    numbers = [*range(0, 20), 25, 43, 99, 500]  # a whole fragment, single rows, a deleted and an unknown key
    changes = superseded(tmp_path, dataset, kind, numbers, rounds)
    assert [change.fragment_id for change in changes] == list(range(FRAGMENTS))
    assert [change.superseded for change in changes] == [18, 1, 0, 0, 1]
    assert changes[0].is_removal
    assert count_repeated(changes) == 0
    assert left(tmp_path, dataset, changes) == sorted(set(before) - set(numbers))


def test_a_condition_narrows_what_is_read_and_nothing_else(tmp_path):
    dataset = table_of(tmp_path, "integers")
    plain = superseded(tmp_path, dataset, "integers", [1, 2, 44])
    narrowed = superseded(tmp_path, dataset, "integers", [1, 2, 44], condition="id <= 2 OR id = 44")
    assert narrowed == plain


def test_copies_of_a_key_are_counted_across_fragments(tmp_path):
    dataset = table_of(tmp_path, "integers")
    dataset = lance.write_dataset(dataset.to_table().slice(0, 2), tmp_path, mode="append")
    assert count_repeated(superseded(tmp_path, dataset, "integers", [0, 1, 50])) == 2


def test_a_fragment_with_fewer_rows_than_described_is_refused(tmp_path):
    dataset = table_of(tmp_path, "integers")
    [first, *_] = describe_fragments(dataset)
    target = DeletionTarget(open_store(str(tmp_path)), "attempt")
    search = KeySearch(rows("integers", [1]), ["id"])
    with pytest.raises(CorruptionError, match="as many rows"):
        list(supersede(dataset, [replace(first, live_rows=19)], [search], KeyScan(["id"]), target))


def test_repeating_an_attempt_writes_the_same_files(tmp_path):
    dataset = table_of(tmp_path, "texts")
    assert superseded(tmp_path, dataset, "texts", range(40)) == superseded(tmp_path, dataset, "texts", range(40))
