"""Every query agrees with a dictionary, whatever was written, flushed, merged and collected before it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.run import collect_garbage
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import GcSettings, Settings, WalCollection, WriterSettings
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.garbage import gc_admin
from testkit.tables.people import PRIMARY_KEY_METADATA
from testkit.tables.readable import keys_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("word", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)
WORDS = ["ant", "bee", "cat", "dog"]
KEYS = 12
MAINTENANCE = ["flush", "flush", "flush", "merge", "merge", "snapshot", "catch_up", "compact", "collect"]
GC = GcSettings(collect_wal=WalCollection.ALL, grace_s=0, manifest_retention=2, concurrency=1)

Step = tuple[str, list[int] | None, tuple[str, tuple[float, float]] | None]
Model = dict[int, tuple[str, tuple[float, float]]]

keys = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=4)
values = st.tuples(st.sampled_from(WORDS), st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, values),
        st.tuples(st.just("put"), keys, values),
        st.tuples(st.just("delete"), keys, st.none()),
        st.tuples(st.sampled_from(MAINTENANCE), st.none(), st.none()),
        st.tuples(st.sampled_from(MAINTENANCE), st.none(), st.none()),
    ),
    min_size=6,
    max_size=14,
)


def _rows(ids: Sequence[int], word: str, place: tuple[float, float]) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "word": word, "vec": list(place)} for key in ids], schema=SCHEMA)


def _check(view: TableView, model: Model) -> None:
    _check_scans(view, model)
    _check_lookups(view, model)
    _check_texts(view, model)
    _check_vectors(view, model)


def _check_scans(view: TableView, model: Model) -> None:
    rows = view.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["word"], tuple(row["vec"])) for row in rows) == sorted(
        (key, word, place) for key, (word, place) in model.items()
    )
    bees = {key for key, (word, _) in model.items() if word == "bee"}
    low = ScanRequest(columns=("id",), filter_sql="word = 'bee' AND id < 6")
    assert set(view.scan(low).to_arrow().column("id").to_pylist()) == {key for key in bees if key < 6}
    best = ScanRequest(columns=("word", "id"), order_by=(("word", "descending"), ("id", "ascending")), limit=3)
    ordered = sorted(((word, key) for key, (word, _) in model.items()), key=lambda each: (-ord(each[0][0]), each[1]))
    assert [(row["word"], row["id"]) for row in view.scan(best).to_arrow().to_pylist()] == ordered[:3]
    assert view.scan(ScanRequest(limit=4)).to_arrow().num_rows == min(4, len(model))
    assert view.scan().count() == len(model)
    assert view.scan(ScanRequest(filter_sql="word = 'bee'")).count() == len(bees)


def _check_lookups(view: TableView, model: Model) -> None:
    found = view.lookup(keys_of(*range(KEYS)), ["id", "word"]).to_pylist()
    assert [(row["id"], row["word"]) for row in found] == [(key, model[key][0]) for key in sorted(model)]
    for key in (0, KEYS - 1):
        assert [row["word"] for row in view.lookup(keys_of(key)).to_pylist()] == [
            model[each][0] for each in model if each == key
        ]


def _check_texts(view: TableView, model: Model) -> None:
    bees = {key for key, (word, _) in model.items() if word == "bee"}
    # Every text is one word, so that of BM25 only the weight of the word is left.
    score = math.log(1 + (len(model) - len(bees) + 0.5) / (len(bees) + 0.5))
    text = view.full_text_search(TextQuery("word", "bee", k=KEYS, columns=("id",)))
    assert set(text.column("id").to_pylist()) == bees
    assert text.column("_score").to_pylist() == pytest.approx([score] * len(bees), rel=1e-4)
    low = view.full_text_search(TextQuery("word", "bee", k=KEYS, columns=("id",), filter_sql="id < 6"))
    assert set(low.column("id").to_pylist()) == {key for key in bees if key < 6}


def _check_vectors(view: TableView, model: Model) -> None:
    for filter_sql, keys_left in ((None, range(KEYS)), ("id < 6", range(6))):
        query = VectorQuery("vec", np.array([0.5, 0.25], np.float32), k=3, columns=("id",), filter_sql=filter_sql)
        nearest = view.vector_search(query)
        places = [place for key, (_, place) in model.items() if key in keys_left]
        distances = sorted((x - 0.5) ** 2 + (y - 0.25) ** 2 for x, y in places)[:3]
        assert nearest.column("_distance").to_pylist() == pytest.approx(distances)
        assert len(set(nearest.column("id").to_pylist())) == len(distances)


class _Table:
    """A table, its writer, and what each consistency must show of it."""

    def __init__(self, uri: str, *, with_indexes: bool) -> None:
        lance.write_dataset(_rows([0, 1, 2], "ant", (1, 1)), uri)
        lance.dataset(uri).create_scalar_index("word", "INVERTED", name="by_word", stem=False)
        lance.dataset(uri).create_index("vec", "IVF_FLAT", name="by_place", num_partitions=1)
        base = BaseTable.open(uri)
        maintained = ["by_word", "by_place"] if with_indexes else []
        base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)], maintained)
        self._admin = Table.open(uri)
        self._uri = uri
        self.writer = TableWriter.open(
            base.with_settings(Settings(writer=WriterSettings(durable_write=False, background_flush=False)))
        )
        self._now: Model = dict.fromkeys([0, 1, 2], ("ant", (1, 1)))
        self._flushed, self._published = dict(self._now), None
        self.put(list(range(KEYS)), ("dog", (8, 8)))  # Both regions exist from the beginning.

    def put(self, ids: list[int], value: tuple[str, tuple[float, float]]) -> None:
        self.writer.put(_rows(ids, *value))
        self._now.update(dict.fromkeys(ids, value))

    def delete(self, ids: list[int], value: None) -> None:
        self.writer.delete(keys_of(*ids))
        self._now = {key: kept for key, kept in self._now.items() if key not in ids}

    def flush(self, *_: None) -> None:
        self.writer.flush()
        self._flushed = dict(self._now)

    def merge(self, *_: None) -> None:
        self._admin.run(MergeRequest())
        if self._published is not None:
            self._published = dict(self._flushed)  # What is merged shows whatever the snapshot says.

    def snapshot(self, *_: None) -> None:
        self._admin.run(SnapshotRequest())
        self._published = dict(self._flushed)

    def catch_up(self, *_: None) -> None:
        self._admin.run(CatchupRequest())

    def compact(self, *_: None) -> None:
        self._admin.run(CompactRequest(force=True))

    def collect(self, *_: None) -> None:
        """Delete what nobody needs, as if all of it were old; the versions before the newest first."""
        lance.dataset(self._uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
        report = collect_garbage(JobContext(gc_admin(self._uri, settings=GC).opened))
        assert report.failures == ()

    def check(self) -> None:
        table = MergedReader(BaseTable.open(self._uri), writers=lambda: list(self.writer.writers.values()))
        _check(table.view(Consistency.IN_PROCESS), self._now)
        _check(table.view(Consistency.LATEST), self._flushed)

    def check_at_the_end(self) -> None:
        table = Table.open(self._uri)
        _check(table.view(Consistency.SNAPSHOT), self._published if self._published is not None else self._flushed)
        _check(table.view(Consistency.DURABLE), self._now)


@pytest.mark.req("RD-01", "RD-05", "RD-06", "RD-09", "RD-11", "RD-14", "RD-39")
@settings(derandomize=True, deadline=None, max_examples=4)
@given(steps=operations, with_indexes=st.booleans())
def test_queries_agree_with_the_model_after_any_history(steps: list[Step], with_indexes: bool) -> None:
    _follow(steps, with_indexes=with_indexes)


@pytest.mark.slow
@pytest.mark.req("RD-01", "RD-05", "RD-06", "RD-09", "RD-11", "RD-14", "RD-39")
@settings(derandomize=True, deadline=None, max_examples=8)
@given(steps=operations, with_indexes=st.booleans())
def test_queries_agree_with_the_model_after_many_histories(steps: list[Step], with_indexes: bool) -> None:
    _follow(steps, with_indexes=with_indexes)


def _follow(steps: list[Step], *, with_indexes: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = _Table(str(Path(directory) / "t"), with_indexes=with_indexes)
        with table.writer:
            for name, ids, value in steps:
                getattr(table, name)(ids, value)
                table.check()
        table.check_at_the_end()


@pytest.mark.req("RD-28", "RD-29", "RD-33", "RD-67", "RD-68")
@pytest.mark.slow
@pytest.mark.parametrize("with_indexes", [False, True])
def test_queries_agree_with_the_model_while_indexes_lag_and_catch_up(tmp_path: Path, with_indexes: bool) -> None:
    steps: list[Step] = [
        ("put", [1, 2], ("bee", (0, 0))), ("flush", None, None), ("merge", None, None),
        ("put", [2, 3, 4], ("cat", (1, 1))), ("delete", [1], None), ("flush", None, None), ("merge", None, None),
        ("put", [4, 5], ("bee", (2, 0))), ("flush", None, None), ("catch_up", None, None), ("compact", None, None),
        ("put", [6], ("bee", (3, 0))), ("flush", None, None), ("merge", None, None), ("collect", None, None),
        ("put", [6, 7], ("ant", (0, 1))), ("snapshot", None, None), ("catch_up", None, None), ("collect", None, None),
    ]  # fmt: skip
    table = _Table(str(tmp_path / "t"), with_indexes=with_indexes)
    with table.writer:
        for name, ids, value in steps:
            getattr(table, name)(ids, value)
            table.check()
    table.check_at_the_end()
