"""Rows flushed before a column was added read as a merge would leave them (decision 0012)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.flushed.read import MergeTarget
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency, GenerationSource, SourceKind
from memwal_core.reader.rows.unflushed import unflushed_rows
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, PRIMARY_KEY_METADATA, make_people_table, people
from testkit.tables.readable import keys_of, read_with
from testkit.tables.regions import writer_settings

EXTRA = pa.field("extra", pa.int32())
ALL = keys_of(*range(1, 9), 50, 51, 60)


def _with_extra(rows: pa.Table, value: int | None) -> pa.Table:
    return rows.append_column(EXTRA, pa.array([value] * rows.num_rows, EXTRA.type))


def _drifted(uri: str) -> None:
    """Every way in which a row can come to lack a column that its table has.

    Generation 1 (no ``extra``): updates 1, 2, 3, 4 and inserts 50, 51. Generation 2: updates 2, deletes 3 and 51.
    Generation 3: writes 3 again. Then the column is added and backfilled. Generation 4 has it: 4, 60 = 7.
    """
    make_people_table(uri, rows=people(*range(1, 9)), buckets=1)
    region = native_region_id(1)
    gone = pa.table({"id": [3, 51]}, schema=pa.schema([PEOPLE.field("id")]))
    write_native_generations(
        uri,
        region,
        [
            [Put(people(1, 2, 3, 4, 50, 51, name="g1"))],
            [Put(people(2, name="g2")), Delete(gone)],
            [Put(people(3, name="g3"))],
        ],
    )
    lance.dataset(uri).add_columns(EXTRA)
    lance.dataset(uri).update({"extra": "CAST(id + 1000 AS INT)"})
    write_native_generations(uri, region, [[Put(_with_extra(people(4, 60, name="g4"), 7))]])


def _answers(view: TableView) -> dict[str, object]:
    """What queries of every kind say, in an order that does not depend on where rows are."""
    whole = view.scan().to_arrow().sort_by("id")
    filters = ["extra > 1001", "extra IS NULL", "extra = 7 OR name = 'g2'", "id < 4 AND extra IS NOT NULL"]
    return {
        "rows": whole.to_pylist(),
        "extra alone": sorted(view.scan(ScanRequest(columns=("extra",))).to_arrow().column(0).to_pylist(), key=str),
        "filtered": [
            view.scan(ScanRequest(columns=("id",), filter_sql=each)).to_arrow().sort_by("id").column(0).to_pylist()
            for each in filters
        ],
        "counts": [view.scan(ScanRequest(filter_sql=each)).count() for each in (None, *filters)],
        "looked up": view.lookup(ALL).to_pylist(),
    }


@pytest.mark.req("RD-69")
def test_reader_and_merge_give_the_same_answer_for_columns_that_generations_lack(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    _drifted(uri)
    table = Table.open(uri)
    before = _answers(table.view())
    generations = [len(region.generations) for region in table.scan().plan.regions]
    Table.open(uri).run(MergeRequest())

    assert generations == [4]
    assert [len(region.generations) for region in table.scan().plan.regions] == [0]
    assert before == _answers(table.view())
    by_key = {row["id"]: (row["name"], row["extra"]) for row in before["rows"]}  # type: ignore[attr-defined]
    assert by_key == {
        1: ("g1", 1001), 2: ("g2", 1002), 3: ("g3", None), 4: ("g4", 7), 50: ("g1", None), 60: ("g4", 7),
        **{key: (f"p{key}", key + 1000) for key in (5, 6, 7, 8)},
    }  # fmt: skip


@pytest.mark.req("RD-69")
def test_value_comes_from_an_older_generation_that_has_the_column(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2), buckets=1)
    region = native_region_id(1)
    write_native_generations(uri, region, [[Put(people(1, 2, name="g1"))]])
    lance.dataset(uri).add_columns(EXTRA)
    write_native_generations(uri, region, [[Put(_with_extra(people(1, 9, name="g2"), 5))]])
    other = pa.field("other", pa.string())
    lance.dataset(uri).add_columns(other)
    lance.dataset(uri).update({"other": "concat('o', CAST(id AS VARCHAR))"})
    before = Table.open(uri).to_arrow().sort_by("id").to_pylist()
    Table.open(uri).run(MergeRequest())

    assert before == Table.open(uri).to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["extra"], row["other"]) for row in before] == [(1, 5, "o1"), (2, None, "o2"), (9, 5, None)]


@pytest.mark.req("RD-69")
def test_search_in_a_column_that_a_generation_lacks_finds_the_inherited_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA), ("name", pa.string())]
    )
    lance.write_dataset(pa.table({"id": list(range(20)), "name": ["old"] * 20}, schema=schema), uri)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 1)])
    with TableWriter.open(base) as writer:
        writer.put(pa.table({"id": [3, 30], "name": ["new", "new"]}, schema=schema))
        writer.flush()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(40, dtype=np.float32)), 2)
    lance.dataset(uri).merge(
        pa.table({"id": list(range(20)), "vec": vectors, "text": [f"word{i}" for i in range(20)]}), "id"
    )
    lance.dataset(uri).create_scalar_index("text", "INVERTED", stem=False)
    view = Table.open(uri).view()
    nearest = view.vector_search(VectorQuery("vec", np.array([6, 7], np.float32), k=2))
    texts = view.full_text_search(TextQuery("text", "word3"))

    assert nearest.select(["id", "name"]).to_pylist()[0] == {"id": 3, "name": "new"}
    assert [(row["id"], row["name"]) for row in texts.to_pylist()] == [(3, "new")]
    assert view.vector_search(VectorQuery("vec", np.array([6, 7], np.float32), k=50)).num_rows == 20


def test_new_column_with_the_id_of_a_dropped_one_never_shows_old_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, native_region_id(1), [[Put(people(1, 9, name="g1"))]])
    lance.dataset(uri).drop_columns(["score"])
    lance.write_dataset(people(3).drop_columns(["score"]), uri, mode="append")
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).add_columns(pa.field("weight", pa.float64()))

    asks: list[Callable[[TableView], object]] = [
        lambda view: view.scan().batches().read_all(),
        lambda view: view.lookup(keys_of(9)),
        lambda view: view.lookup(keys_of(*range(1, 80))),
    ]
    for ask in asks:
        with pytest.raises(InvalidRequestError, match="no retained version proves"):
            ask(Table.open(uri).view(Consistency.LATEST))


def _add(uri: str) -> None:
    lance.dataset(uri).add_columns(EXTRA)
    lance.dataset(uri).update({"extra": "CAST(id + 1000 AS INT)"})


def _rename(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "name", "name": "called"})


def _drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["name"])


def _all_at_once(uri: str) -> None:
    _add(uri)
    lance.dataset(uri).alter_columns({"path": "name", "name": "called"})
    lance.dataset(uri).drop_columns(["score"])


def _unflushed_answers(uri: str, view: TableView) -> list[object]:
    schema = lance.dataset(uri).schema
    last = schema.names[-1]
    return [
        view.scan().to_arrow().sort_by("id").to_pylist(),
        view.lookup(keys_of(*range(1, 12))).to_pylist(),
        sorted(map(str, view.scan(ScanRequest(columns=(last,))).to_arrow().column(0).to_pylist())),
        view.scan(ScanRequest(columns=("id",), filter_sql=f"{last} IS NULL OR id > 3")).to_arrow().num_rows,
        view.scan(ScanRequest(filter_sql=f"{last} IS NOT NULL")).count(),
    ]


@pytest.mark.req("RD-10", "RD-69")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
@pytest.mark.parametrize("change", [_add, _rename, _drop, _all_at_once])
def test_unflushed_rows_older_than_a_change_of_schema_read_as_a_flush_and_a_merge_leave_them(
    tmp_path: Path, codec: str, change: Callable[[str], None]
) -> None:
    uri = str(tmp_path / "t")
    settings = writer_settings(new_region_codec=codec)
    crashed = TableWriter.open(make_people_table(uri, rows=people(*range(1, 6)), buckets=1, settings=settings))
    crashed.put(people(1, 2, 9, name="flushed"))
    crashed.flush()
    crashed.put(people(2, 3, 10, name="durable"))
    crashed.delete(keys_of(4))
    crashed.put(people(4, name="again"))
    crashed.delete(keys_of(5))
    change(uri)
    writers = list(crashed.writers.values())
    durable = _unflushed_answers(uri, Table.open(uri).view(Consistency.DURABLE))
    in_process = _unflushed_answers(uri, read_with(uri, writers).view(Consistency.IN_PROCESS))
    (region,) = Table.open(uri).scan().plan.regions
    with RegionWriter.open(BaseTable.open(uri, settings=settings), region.region_id) as successor:
        successor.flush()
    Table.open(uri).run(MergeRequest())
    merged = Table.open(uri).view()

    assert [len(region.generations) for region in merged.scan().plan.regions] == [0]
    assert durable == in_process == _unflushed_answers(uri, merged)
    assert [row["id"] for row in durable[0]] == [1, 2, 3, 4, 9, 10]  # type: ignore[attr-defined]


def test_unflushed_rows_that_no_version_explains_are_refused_with_what_to_do(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1), buckets=1)
    state = table.state()
    target = MergeTarget(state.schema, state.field_ids, ("id",))
    rows = pa.table({"id": [2], "weight": [1.5], "_tombstone": [False]})
    source = GenerationSource(native_region_id(1), 1, SourceKind.WAL, rows=rows)

    with pytest.raises(InvalidRequestError, match="no retained version of the table has these columns") as told:
        unflushed_rows(table, state, source, target, lambda keys, _: keys)
    assert "opening a writer" in str(told.value)


def test_unflushed_values_of_a_dropped_field_inside_do_not_come_back_in_a_new_one_of_its_name(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    column = pa.field("place", pa.struct([("city", pa.string()), ("code", pa.int64())]))

    def written(code: int, *ids: int) -> pa.Table:
        values = pa.array([{"city": "here", "code": code}] * len(ids), column.type)
        return people(*ids).append_column(column, values)

    lance.write_dataset(written(1, 1, 2), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    region = str(native_region_id(1))
    with lance.dataset(uri).mem_wal_writer(region, max_wal_flush_interval_ms=1) as writer:
        writer.put(written(77, 1, 3))
        before = Table.open(uri).to_arrow(consistency=Consistency.DURABLE)
        lance.dataset(uri).drop_columns(["place.code"])
        lance.dataset(uri).add_columns(pa.field("place", pa.struct([("code", pa.int64())])))
        after = Table.open(uri).to_arrow(consistency=Consistency.DURABLE)
    assert {row["place"]["code"] for row in before.to_pylist()} == {1, 77}
    assert [row["place"] for row in after.to_pylist()] == [{"city": "here", "code": None}] * 3
