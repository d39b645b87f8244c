"""Scans return the newest version of each row, whatever is filtered, projected or limited."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.native_regions import make_table_divided_by
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model, keys_of, read_with


def _written(uri: str) -> Table:
    """Base 0..9; generation 1 updates 1 and 2 and inserts 10; generation 2 updates 2 and deletes 3."""
    table = make_people_table(uri, rows=people(*range(10)), buckets=1)
    with TableWriter.open(table) as writer:
        writer.put(people(1, 2, 10, name="gen1"))
        writer.flush()
        writer.put(people(2, name="gen2"))
        writer.delete(keys_of(3))
        writer.flush()
    return Table.open(uri)


EXPECTED = {0: "p0", 1: "gen1", 2: "gen2", **{i: f"p{i}" for i in range(4, 10)}, 10: "gen1"}


@pytest.mark.req("RD-01", "RD-02", "RD-05", "RD-06")
def test_newest_version_of_each_key_is_returned_once(tmp_path: Path) -> None:
    assert as_model(_written(str(tmp_path / "t")).to_arrow()) == EXPECTED


@pytest.mark.req("RD-04", "RD-57")
def test_last_of_four_versions_in_one_generation_wins(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1)) as writer:
        for name in ("a", "b", "c"):
            writer.put(people(7, 8, name=name))
        writer.put(pa.concat_tables([people(7, name="d"), people(7, name="e")]))
        in_process = read_with(uri, writer.writers.values())
        before = as_model(in_process.to_arrow(consistency=Consistency.IN_PROCESS))
        writer.flush()

    assert before == as_model(Table.open(uri).to_arrow()) == {7: "e", 8: "c"}


@pytest.mark.req("RD-39")
@pytest.mark.parametrize("kind", ["flushed", "durable", "in_process"])
def test_filter_never_lets_an_old_version_surface(tmp_path: Path, kind: str) -> None:
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2, name="v1"), buckets=1)
    with TableWriter.open(table) as writer:
        writer.put(people(1, name="v2"))
        writer.delete(keys_of(2))
        if kind == "flushed":
            writer.flush()
        reader = read_with(uri, writer.writers.values())
        consistency = Consistency.LATEST if kind == "flushed" else Consistency(kind)

        assert reader.to_arrow(ScanRequest(filter_sql="name = 'v1'"), consistency=consistency).num_rows == 0
        assert reader.count("name = 'v1'", consistency=consistency) == 0
        assert reader.count("name = 'v2'", consistency=consistency) == 1


@pytest.mark.req("RD-25", "RD-39")
def test_filter_on_the_old_region_of_a_row_that_moved_does_not_find_its_old_version(tmp_path: Path) -> None:
    """The region with the new version was left out, so that the base table's version passed the filter."""
    fields = pa.schema([("tenant", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), 2))])
    table = make_table_divided_by("tenant", str(tmp_path / "t"), fields)
    with table.writer() as writer:
        for tenant in "ab":
            rows = {"id": [1], "tenant": [tenant], "text": ["word"], "vector": [[1.0, 2.0]]}
            writer.put(pa.table(rows, schema=table.base.state().schema))
            writer.flush()
            if tenant == "a":
                table.run(MergeRequest())
                lance.dataset(table.uri).create_scalar_index("text", "INVERTED")

        for tenant, found in (("a", []), ("b", [1])):
            condition, columns = f"tenant = '{tenant}'", ("id",)
            assert table.to_arrow(ScanRequest(columns, condition))["id"].to_pylist() == found
            assert table.count(condition) == len(found)
            near = VectorQuery("vector", [1.0, 2.0], columns=columns, filter_sql=condition)
            assert table.vector_search(near)["id"].to_pylist() == found
            words = TextQuery("text", "word", columns=columns, filter_sql=condition)
            assert table.full_text_search(words)["id"].to_pylist() == found


@pytest.mark.parametrize(
    "filter_sql",
    ["upper(name) = 'GEN1'", "starts_with(name, 'gen1')", "id > 2 AND lower(name) = 'gen1' OR id = 1"],
)
def test_filter_may_call_functions(tmp_path: Path, filter_sql: str) -> None:
    table = _written(str(tmp_path / "t"))

    assert as_model(table.to_arrow(ScanRequest(filter_sql=filter_sql))) == {1: "gen1", 10: "gen1"}
    assert table.count(filter_sql) == 2


@pytest.mark.parametrize("merged", [False, True])
def test_own_column_called_like_the_generation_is_returned_as_it_was_written(tmp_path: Path, merged: bool) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("_gen", pa.string())])
    rows = pa.table({"id": [1, 2], "_gen": ["first", "second"]}, schema=schema)
    table = Table.create(str(tmp_path / "t"), schema, key="id")
    with table.writer() as writer:
        writer.put(rows)
        writer.flush()
    if merged:
        table.run(MergeRequest())

    assert table.to_arrow().sort_by("id").to_pydict() == rows.to_pydict()
    assert sorted(table.to_arrow(ScanRequest(columns=("_gen",))).column(0).to_pylist()) == ["first", "second"]


def test_filter_may_name_a_field_of_a_struct(tmp_path: Path) -> None:
    place = pa.struct([("country", pa.string())])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("place", place)])
    table = Table.create(str(tmp_path / "t"), schema, key="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2], "place": [{"country": "de"}, {"country": "fr"}]}, schema=schema))
        writer.flush()

    found = table.to_arrow(ScanRequest(columns=("id",), filter_sql="place.country = 'fr'"))

    assert found.column("id").to_pylist() == [2]


def test_struct_called_like_a_table_is_not_taken_for_one(tmp_path: Path) -> None:
    """Regions were left out by the key, as if `rows.id` were the column `id` of a table called `rows`."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("rows", pa.struct([("id", pa.int64())]))])
    table = Table.create(str(tmp_path / "t"), schema, key="id", regions="id")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2], "rows": [{"id": 2}, {"id": 1}]}, schema=schema))
        writer.flush()

    found = table.to_arrow(ScanRequest(columns=("id",), filter_sql="rows.id = 2"))

    assert found.column("id").to_pylist() == [1]


def test_text_in_double_quotes_is_a_string_in_every_source(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("tenant", pa.string(), nullable=False)])
    table = Table.create(str(tmp_path / "t"), schema, key=["id", "tenant"], regions=["tenant"])
    with table.writer() as writer:
        writer.put(pa.table({"id": [1], "tenant": ["a"]}, schema=schema))
        writer.flush()
        table.run(MergeRequest())
        writer.put(pa.table({"id": [2], "tenant": ["b"]}, schema=schema))
        writer.flush()

    assert table.count("\"tenant\" = 'tenant'") == 2


@pytest.mark.req("RD-40")
def test_key_and_generation_are_returned_only_when_asked_for(tmp_path: Path) -> None:
    table = _written(str(tmp_path / "t"))

    names = table.to_arrow(ScanRequest(columns=("name",)))
    tagged = table.to_arrow(ScanRequest(columns=("_gen", "id")))

    assert names.column_names == ["name"]
    assert sorted(names.column("name").to_pylist()) == sorted(EXPECTED.values())
    by_key = dict(zip(tagged.column("id").to_pylist(), tagged.column("_gen").to_pylist(), strict=True))
    assert (by_key[0], by_key[1], by_key[2]) == (-1, 1, 2)


@pytest.mark.req("RD-41")
def test_limit_and_order_apply_after_deduplication(tmp_path: Path) -> None:
    table = _written(str(tmp_path / "t"))
    request = ScanRequest(columns=("id", "name"), order_by=(("name", "ascending"), ("id", "ascending")), limit=2)

    assert table.to_arrow(request).to_pylist() == [{"id": 1, "name": "gen1"}, {"id": 10, "name": "gen1"}]
    limited = table.to_arrow(ScanRequest(limit=3))
    assert limited.num_rows == 3
    assert as_model(limited).items() <= EXPECTED.items()
    assert table.to_arrow(ScanRequest(limit=0)).num_rows == 0


@pytest.mark.req("RD-05", "RD-20")
def test_merged_generations_that_are_still_listed_change_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = _written(uri)
    before = as_model(table.to_arrow())
    Table.open(uri).run(MergeRequest())

    plan = table.scan().plan
    assert [region.generations for region in plan.regions] == [()]
    assert [source.generation for source in plan.regions[0].merged_generations] == [2, 1]
    assert as_model(table.to_arrow()) == before
    assert table.count() == len(before)


@pytest.mark.req("RD-18")
def test_generations_of_different_regions_are_independent(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=2)) as writer:
        writer.put(people(*range(20), name="first"))
        writer.flush()
        own = next(iter(writer.writers.values()))
        own_keys = set(range(20)) & {
            key for key in range(20) if writer.put(people(key, name="again")).regions.keys() == {own.region_id}
        }
        own.flush()
        for number in range(3):
            own.put(people(*sorted(own_keys), name=f"round{number}"))
            own.flush()
        model = as_model(Table.open(uri).to_arrow())

    assert set(model) == set(range(20))
    assert {model[key] for key in own_keys} == {"round2"}


def test_batches_stream_with_the_freshness_in_the_schema(tmp_path: Path) -> None:
    table = _written(str(tmp_path / "t"))
    with table.scan().batches() as reader:
        metadata = reader.schema.metadata
        rows = reader.read_all()

    assert b"memwal:freshness" in metadata
    assert as_model(rows) == EXPECTED
    assert len(table.scan().to_pandas()) == len(EXPECTED)


def test_column_added_after_a_flush_is_null_and_a_renamed_one_keeps_its_values(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = _written(uri)
    dataset = lance.dataset(uri)
    dataset.add_columns(pa.field("extra", pa.int32()))
    lance.dataset(uri).alter_columns({"path": "name", "name": "label"})

    rows = table.to_arrow(ScanRequest(filter_sql="label LIKE 'gen%'", columns=("id", "label", "extra")))
    found = {row["id"]: (row["label"], row["extra"]) for row in rows.to_pylist()}
    assert found == {1: ("gen1", None), 2: ("gen2", None), 10: ("gen1", None)}
    looked_up = table.lookup(keys_of(2, 3, 10)).to_pylist()
    assert [(row["id"], row["label"], row["extra"]) for row in looked_up] == [(2, "gen2", None), (10, "gen1", None)]


@pytest.mark.parametrize(
    "request_", [ScanRequest(columns=("nothing",)), ScanRequest(columns=()), ScanRequest(limit=-1)]
)
def test_impossible_requests_are_refused(tmp_path: Path, request_: ScanRequest) -> None:
    with pytest.raises(InvalidRequestError):
        _written(str(tmp_path / "t")).scan(request_)


def test_filter_that_lance_refuses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        _written(str(tmp_path / "t")).to_arrow(ScanRequest(filter_sql="no_such_column = 1"))
