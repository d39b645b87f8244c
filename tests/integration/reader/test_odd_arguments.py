"""Whatever a caller passes to a read, the answer is rows or an error of ours that says what to pass."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memwal_core
from memwal_core.errors import InvalidRequestError
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("v", pa.list_(pa.float32(), 2))])
KEY = pa.table({"id": [1]})
VECTOR = np.array([1.0, 2.0])

Read = Callable[[memwal_core.Table], object]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> memwal_core.Table:
    uri: Path = tmp_path_factory.mktemp("odd") / "t"
    table = memwal_core.create(str(uri), SCHEMA, key="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2], "s": ["word", "other"], "v": [[1, 2], [3, 4]]}, schema=SCHEMA))
        writer.flush()
    table.run(memwal_core.MergeRequest())
    table.base.dataset().create_scalar_index("s", "INVERTED")
    return table


def scan(**given: Any) -> Read:
    return lambda table: table.to_arrow(ScanRequest(**given))


def near(**given: Any) -> Read:
    return lambda table: table.vector_search(VectorQuery(**({"column": "v", "vector": VECTOR} | given)))


def words(**given: Any) -> Read:
    return lambda table: table.full_text_search(TextQuery(**({"column": "s", "query": "a"} | given)))


ODD: list[tuple[str, Read]] = [
    *((f"limit {odd!r}", scan(limit=odd)) for odd in (-1, True, 1.5, "3", 1 << 63)),
    *((f"batch_rows {odd!r}", scan(batch_rows=odd)) for odd in (0, True, 1.5, "3")),
    *(
        (f"order_by {odd!r}", scan(order_by=odd))
        for odd in (None, "id", ("id", "ascending"), (("id", "up"),), (("id",),), (("v", "ascending"),), (1,))
    ),
    *((f"columns {odd!r}", scan(columns=odd)) for odd in ("s", 5, (1,), ("id", "id"))),
    *((f"filter {odd!r}", scan(filter_sql=odd)) for odd in (5, b"id = 1", "id = ?", "id = $1", "s = :a")),
    *(
        (f"filter {odd!r}", scan(filter_sql=odd))
        for odd in ("id > 1 AN s = 'a'", "id > 1 LIMIT 1", "id > 1, s = 'a'", "id > 1; DROP TABLE t", "id > 1 AS x")
    ),
    *((f"filter {odd!r}", scan(filter_sql=odd)) for odd in ("id > 1) OR (true", "id > 1) AN (s = 'a'", "id > 1) --")),
    *(
        (f"filter {odd!r}", scan(filter_sql=odd))
        for odd in ("_rowid > 5", "id > 0 AND `_rowaddr` = 1", "_ROWOFFSET = 0", "_row_created_at_version > 1")
    ),
    ("count", lambda table: table.count("id = ?")),
    ("explain", lambda table: table.scan(ScanRequest(filter_sql="id = ?")).explain()),
    *((f"version {odd!r}", lambda table, odd=odd: table.to_arrow(version=odd)) for odd in (-1, 0, True, 1.5, "1")),
    *(
        (f"vector {odd!r}", near(vector=odd))
        for odd in (None, 5, "ab", [1.0], [np.nan, 1.0], np.array([[1.0, 2.0]]), ["a", "b"])
    ),
    *((f"k {odd!r}", near(k=odd)) for odd in (0, True, 1.5, "3", None)),
    *((f"metric {odd!r}", near(metric=odd)) for odd in (5, "nothing")),
    *((f"nprobes {odd!r}", near(nprobes=odd)) for odd in (0, 1.5, "3")),
    *((f"refine_factor {odd!r}", near(refine_factor=odd)) for odd in (0, None, "3")),
    *((f"vector columns {odd!r}", near(columns=odd)) for odd in ("s", (), ("id", "id"), ("nothing",))),
    *((f"vector column {odd!r}", near(column=odd)) for odd in (["v"], 5, None, "s")),
    ("vector filter", near(filter_sql="id = ?")),
    ("end of a vector filter", near(filter_sql="id > 1 LIMIT 1")),
    *((f"text k {odd!r}", words(k=odd)) for odd in (0, True, 1.5, "3", None)),
    *((f"words {odd!r}", words(query=odd)) for odd in (None, 5, "\ud800")),
    *((f"text columns {odd!r}", words(columns=odd)) for odd in ("s", (), ("id", "id"), ("nothing",))),
    *((f"text column {odd!r}", words(column=odd)) for odd in (["s"], 5, None, "v")),
    ("text filter", words(filter_sql="id = ?")),
    ("end of a text filter", words(filter_sql="id > 1 LIMIT 1")),
    *(
        (f"keys of {type(odd).__name__}", lambda table, odd=odd: table.lookup(odd))
        for odd in (None, 5, [1], {"id": [1]}, pa.array([1]))
    ),
    *(
        (f"lookup columns {odd!r}", lambda table, odd=odd: table.lookup(KEY, odd))
        for odd in ("id", [], ["s", "s"], ["nothing"])
    ),
]


@pytest.mark.parametrize("read", [read for _, read in ODD], ids=[ascii(name) for name, _ in ODD])
def test_odd_argument_is_refused_in_words_of_ours(table: memwal_core.Table, read: Read) -> None:
    with pytest.raises(InvalidRequestError):
        read(table)


def test_control_usual_arguments_are_answered(table: memwal_core.Table) -> None:
    usual = ScanRequest(columns=["id", "s"], filter_sql="s <> '?'", limit=np.int64(1), order_by=[("id", "descending")])  # type: ignore[arg-type]
    assert table.to_arrow(usual).column("id").to_pylist() == [2]
    assert table.vector_search(VectorQuery("v", [1, 2], k=np.int64(1))).column("id").to_pylist() == [1]  # type: ignore[arg-type]
    assert table.full_text_search(TextQuery("s", "word", k=1)).num_rows == 1
    assert table.lookup(pa.RecordBatch.from_pydict({"id": [1]}), ["s"]).column("s").to_pylist() == ["word"]


@pytest.mark.parametrize("read", [words(query=""), words(column=""), near(column="")])
def test_empty_text_beside_rows_in_the_wal_is_no_damage(tmp_path: Path, read: Read) -> None:
    """What rows in memory have for a path is empty, too, and so the error spoke of a damaged manifest."""
    table = memwal_core.create(str(tmp_path / "t"), SCHEMA, key="id")
    table.base.dataset().create_scalar_index("s", "INVERTED")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1], "s": ["word"], "v": [[1, 2]]}, schema=SCHEMA))
        with pytest.raises(InvalidRequestError, match=r"does not fit the table|no full-text index"):
            read(table)


def test_filter_that_goes_on_behind_its_condition_is_refused_with_its_text(table: memwal_core.Table) -> None:
    """Lance ignores the rest of a text, so that more rows came than were asked for."""
    with pytest.raises(InvalidRequestError, match="goes on behind its condition") as refused:
        table.count("id > 1 AN s = 'word'")
    assert refused.value.facts["filter"] == "id > 1 AN s = 'word'"


@pytest.mark.parametrize("merged", [False, True])
def test_filter_that_is_one_condition_is_answered_however_it_is_written(tmp_path: Path, merged: bool) -> None:
    table = memwal_core.create(str(tmp_path / "t"), SCHEMA.append(pa.field("day", pa.date32())), key="id")
    row = {"id": [1], "s": ["a)b('--"], "v": [[1, 2]], "day": [date(2025, 1, 2)]}
    with table.writer() as writer:
        writer.put(pa.table(row, schema=table.base.state().schema))
        writer.flush()
    if merged:
        table.run(memwal_core.MergeRequest())

    for condition in (
        "s = 'a)b(''--'",
        "s LIKE 'a)b%'",
        "s LIKE 'a_b(%' ESCAPE '\\'",
        'id = 1 AND "x)" <> s',
        "id = 1 -- until here)",
        "id = 1 -- until here\n",
        "id = 1 /* ) */",
        "/* ( */ (id = 1)",
        "cast(id AS string) = '1'",
        "id = 1::bigint",
        "day = date '2025-01-02'",
        "(id = 1 OR id = 2) AND (s IS NOT NULL)",
        "`id` = 1\nAND s IN ('(', 'a)b(''--')",
        "id BETWEEN 0 AND 1",
        "NOT (id = 2)",
        "length(replace(s, ')', '')) = 6",
        f"id IN ({', '.join(map(str, range(10_000)))})",
    ):
        assert table.count(condition) == 1, condition


@pytest.mark.parametrize(("name", "search"), [("_distance", near()), ("_score", words())])
def test_search_of_a_table_that_has_a_column_of_its_result_is_refused_in_our_words(
    tmp_path: Path, name: str, search: Read
) -> None:
    table = memwal_core.create(str(tmp_path / "t"), SCHEMA.append(pa.field(name, pa.int64())), key="id")
    table.base.dataset().create_scalar_index("s", "INVERTED")

    with pytest.raises(InvalidRequestError, match="a column of the table has the name") as refused:
        search(table)
    assert refused.value.facts["column"] == name


def test_names_of_lances_own_columns_may_stand_in_texts_and_inside_of_values(tmp_path: Path) -> None:
    place = pa.struct([("_rowid", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("place", place), ("my_rowid", pa.int64())])
    table = memwal_core.create(str(tmp_path / "t"), schema, key="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1], "place": [{"_rowid": 7}], "my_rowid": [8]}, schema=schema))
        for condition in ("place._rowid = 7", "my_rowid = 8", "id = 1 AND '_rowid' = '_rowid'", "id = 1 -- _rowid"):
            assert table.count(condition) == 1
