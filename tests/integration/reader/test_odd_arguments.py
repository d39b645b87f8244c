"""Whatever a caller passes to a read, the answer is rows or an error of ours that says what to pass."""

from __future__ import annotations

from collections.abc import Callable
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
    *((f"nprobes {odd!r}", near(nprobes=odd)) for odd in (0, 1.5, "3")),
    *((f"refine_factor {odd!r}", near(refine_factor=odd)) for odd in (0, None, "3")),
    ("vector columns", near(columns="s")),
    ("vector filter", near(filter_sql="id = ?")),
    *((f"text k {odd!r}", words(k=odd)) for odd in (0, True, 1.5, "3", None)),
    *((f"words {odd!r}", words(query=odd)) for odd in (None, 5, "\ud800")),
    ("text columns", words(columns="s")),
    ("text filter", words(filter_sql="id = ?")),
    *(
        (f"keys of {type(odd).__name__}", lambda table, odd=odd: table.lookup(odd))
        for odd in (None, 5, [1], {"id": [1]}, pa.array([1]))
    ),
    ("lookup columns", lambda table: table.lookup(KEY, "id")),
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
