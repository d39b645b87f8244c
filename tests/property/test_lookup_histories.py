"""Lookups of any number of keys find what a full scan finds, whatever indexes the key has and however old they are."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.rows import places
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA

FAST = Settings(storage=StorageSettings(fsync=False), writer=WriterSettings(background_flush=False))
KEYS = 14
KINDS: dict[str, tuple[tuple[pa.DataType, ...], Callable[[int], tuple[object, ...]]]] = {
    "integer": ((pa.int64(),), lambda number: ((number * 7919) % 97 - 40,)),
    "text": ((pa.string(),), lambda number: ("'k" * (number % 3) + f"ü{number}",)),
    "composite": ((pa.string(), pa.int32()), lambda number: ("ab"[number % 2], number // 2)),
}

some_keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), some_keys),
        st.tuples(st.just("put"), some_keys),
        st.tuples(st.just("delete"), some_keys),
        st.tuples(st.sampled_from(["flush", "flush", "merge", "merge", "BTREE", "ZONEMAP", "compact"]), st.just([])),
    ),
    min_size=8,
    max_size=16,
)


class _History:
    def __init__(self, uri: str, kind: str) -> None:
        types, self._key_of = KINDS[kind]
        position = "lance-schema:unenforced-primary-key:position"
        key = [
            pa.field(f"k{at}", each, nullable=False, metadata={**PRIMARY_KEY_METADATA, position: str(at + 1)})
            for at, each in enumerate(types)
        ]
        self._schema = pa.schema([*key, pa.field("wide", pa.string()), pa.field("n", pa.int64())])
        self._key = [field.name for field in key]
        self._uri, self._numbers = uri, itertools.count()
        lance.write_dataset(self._rows([0, 3, 5, 8]), uri, max_rows_per_file=3)
        base = BaseTable.open(uri, settings=FAST)
        base.create_mem_wal_index([bucket_spec(1, "k0", base.state().field_ids, 5)])
        self.writer = TableWriter.open(base)
        self.table = Table.open(uri, settings=FAST)

    def _rows(self, numbers: list[int]) -> pa.Table:
        values = [[self._key_of(number)[at] for number in numbers] for at in range(len(self._schema) - 2)]
        versions = [next(self._numbers) for _ in numbers]
        return pa.table([*values, [f"{each:050}" for each in versions], versions], schema=self._schema)

    def do(self, step: str, numbers: list[int]) -> None:
        if step == "put":
            self.writer.put(self._rows(numbers))  # A key may come twice: the last row is the newest.
        elif step == "delete":
            self.writer.delete(self._rows(sorted(set(numbers))).select(self._key))
        elif step == "flush":
            self.writer.flush()
        elif step == "merge":
            self.table.run(MergeRequest())
        elif step == "compact":
            self.table.run(CompactRequest())
        else:  # What is merged after this is not in the index.
            lance.dataset(self._uri).create_scalar_index(
                self._key[0], "BTREE" if step == "BTREE" else "ZONEMAP", name="by_key", replace=True
            )

    def check(self) -> None:
        view = self.table.view("durable")
        rows = {tuple(row[name] for name in self._key): row for row in view.scan().to_arrow().to_pylist()}
        everything = list(range(KEYS + 2))  # The last two were never written.
        for numbers in (everything, everything[::-3], [4], [KEYS]):
            keys = self._rows(numbers).select(self._key)
            asked = [tuple(row.values()) for row in keys.to_pylist()]
            expected = [rows[each] for each in asked if each in rows]
            for columns in (None, ["n"], self._key):
                names = columns or self._schema.names
                wanted = [{name: row[name] for name in names} for row in expected]
                assert view.lookup(keys, columns).to_pylist() == wanted
                assert self.table.lookup(keys, columns, consistency="durable").to_pylist() == wanted


@pytest.mark.req("RD-42", "RD-45", "RD-60")
@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=pytest.mark.slow if each == "text" else ()) for each in KINDS]
)
@pytest.mark.parametrize("asks", [True, False], ids=["index", "scan"])
@settings(derandomize=True, deadline=None, max_examples=2)
@given(history=steps)
def test_lookups_find_what_a_scan_finds(kind: str, asks: bool, history: list[tuple[str, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        patched.setattr(places, "asks_index", lambda *_: asks)
        world = _History(str(Path(directory) / "t"), kind)
        with world.writer:
            for step, numbers in history:
                world.do(step, numbers)
            world.check()
            world.writer.flush()
            world.check()
        world.do("merge", [])
        world.check()
