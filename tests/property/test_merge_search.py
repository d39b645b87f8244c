"""Every way to search the base table finds what reading all keys finds, whatever became of table and index before."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import DeletionTarget, describe_fragments
from memwal_core.base_table.commit.superseding import KeyScan, supersede
from memwal_core.base_table.keys.choose_search import choose_search
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.keys.spans import around, spans_of
from memwal_core.settings import MergeSettings

NUMBERS = 400


def _scattered(number):
    return number * 7919 % 104_729


KEYS = {
    "integers in order": lambda numbers: {"id": pa.array([number - 50 for number in numbers], pa.int64())},
    "scattered integers": lambda numbers: {"id": pa.array(list(map(_scattered, numbers)), pa.uint64())},
    "texts": lambda numbers: {"id": pa.array([f"{_scattered(number):x}'`" for number in numbers], pa.string())},
    "bytes": lambda numbers: {
        "id": pa.array([_scattered(number).to_bytes(3, "big") for number in numbers], pa.binary())
    },
    "composite": lambda numbers: {
        "tenant": pa.array([f"t{number % 3}" for number in numbers], pa.string()),
        "id": pa.array([number // 3 for number in numbers], pa.int32()),
    },
}
INDEXES = ["BTREE", "ZONEMAP"]


@dataclass
class History:
    """A table by what happens to it: ``present`` are the numbers whose keys it has."""

    uri: str
    kind: str
    stable: bool = False
    present: set[int] = field(default_factory=set)

    @property
    def key(self):
        return list(KEYS[self.kind]([0]))

    def rows(self, numbers):
        numbers = sorted(numbers)
        return pa.table({**KEYS[self.kind](numbers), "n": pa.array(numbers, pa.int64())})

    def append(self, numbers):
        new = set(numbers) - self.present
        if not new:
            return
        lance.write_dataset(
            self.rows(new), self.uri, mode="append" if self.present else "create", enable_stable_row_ids=self.stable
        )
        self.present |= new

    def delete(self, numbers):
        lance.dataset(self.uri).delete(f"n IN ({', '.join(map(str, sorted(numbers)))})")
        self.present -= set(numbers)

    def update(self, numbers):
        merge = lance.dataset(self.uri).merge_insert(self.key).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(self.rows(numbers))
        self.present |= set(numbers)

    def index(self, numbers):
        column = self.key[min(numbers) % len(self.key)]
        kind = INDEXES[max(numbers) % 2]
        lance.dataset(self.uri).create_scalar_index(column, kind, name=f"{column} index", replace=True)

    def compact(self, numbers):
        lance.dataset(self.uri).optimize.compact_files(target_rows_per_fragment=max(numbers) + 10)

    def optimize(self, numbers):
        lance.dataset(self.uri).optimize.optimize_indices()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "delete", "update", "index", "index", "compact", "optimize"]),
        st.sets(st.integers(0, NUMBERS), min_size=1, max_size=60),
    ),
    min_size=2,
    max_size=7,
)


@contextmanager
def happened(kind, steps, *, stable):
    with tempfile.TemporaryDirectory() as directory:
        history = History(f"{directory}/t", kind, stable)
        history.append(range(0, NUMBERS, 2))
        for name, numbers in steps:
            getattr(history, name)(numbers)
        yield history


def searched(table, dataset, key, wanted, condition):
    fragments = describe_fragments(dataset)
    search = KeySearch(wanted.select(key), key)
    changes = supersede(dataset, fragments, [search], KeyScan(key, condition), DeletionTarget(table.store, "one"))
    return [(change.fragment_id, change.superseded, change.document, change.matched) for change in changes]


def ways_of(table, dataset, key, spans):
    rows = {fragment.fragment_id: fragment.physical_rows for fragment in describe_fragments(dataset)}
    return choose_search(table, dataset, rows, key, spans, MergeSettings()).ways


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=8)
@given(stable=st.booleans(), steps=STEPS, wanted=st.sets(st.integers(0, NUMBERS + 50), min_size=1, max_size=40))
def test_every_way_finds_what_a_scan_finds(kind, stable, steps, wanted):
    with happened(kind, [("index", {0, 1}), *steps], stable=stable) as history:
        table, key, rows = BaseTable.open(history.uri), history.key, history.rows(wanted)
        dataset = table.dataset()
        plain = searched(table, dataset, key, rows, "")
        assert sum(count for _, count, _, _ in plain) == len(wanted & history.present)
        bounds = {name: pc.min_max(rows.column(name)) for name in key}
        one_span = {name: [(each["min"].as_py(), each["max"].as_py())] for name, each in bounds.items()}
        ways = [
            *ways_of(table, dataset, key, lambda column: spans_of(rows.column(column))),
            *ways_of(table, dataset, key, lambda column: around(one_span[column])),
        ]
        for way in ways:
            assert searched(table, dataset, key, rows, way.condition) == plain, way
