"""Generations flushed under another schema than the base table has now (decision 0012)."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from memwal_core.coordination.freeze import Choice
from memwal_core.errors import DuplicateKeysError, FrozenError, InvalidRequestError
from memwal_core.jobs.merge.commit.passes import MERGE_COMMIT
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.settings import Settings
from memwal_core.table import Table
from testkit.faults.failpoints import ArmedFailpoints
from testkit.faults.rival_mergers import WAYS, Way, merge_until, prepared_by
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people

REGION, SECOND = native_region_id(1), native_region_id(2)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def merge(uri: str, way: Way):
    return Table.open(uri, settings=Settings(merge=prepared_by(way))).run(MergeRequest())


def rows(uri: str) -> dict[int, tuple[object, ...]]:
    lance.dataset(uri).validate()
    table = lance.dataset(uri).to_table().sort_by("id")
    columns = [table.column(name).to_pylist() for name in table.column_names if name not in {"id", "score"}]
    assert len(set(table.column("id").to_pylist())) == table.num_rows
    return dict(zip(table.column("id").to_pylist(), zip(*columns, strict=True), strict=True))


def add_backfilled_column(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.field("extra", pa.int32()))
    lance.dataset(uri).update({"extra": "CAST(id + 1000 AS INT)"})


@pytest.mark.req("MRG-08")
def test_column_added_after_the_flush_keeps_its_backfilled_value(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2, 3, 4))
    write_native_generations(
        uri, REGION, [[Put(people(1, 50, name="g1"))], [Put(people(2, name="g2")), Delete(keys(3))]]
    )
    add_backfilled_column(uri)

    report = merge(uri, way)

    assert report.outcome is JobOutcome.DONE
    assert rows(uri) == {1: ("g1", 1001), 2: ("g2", 1002), 4: ("p4", 1004), 50: ("g1", None)}


def test_row_deleted_before_it_was_written_again_inherits_nothing(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Delete(keys(1))], [Put(people(1, name="again"))]])
    add_backfilled_column(uri)

    merge(uri, way)

    assert rows(uri) == {1: ("again", None), 2: ("p2", 1002)}


def test_generations_of_the_old_and_the_new_schema_merge_like_one_after_the_other(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2, 3))
    write_native_generations(uri, REGION, [[Put(people(1, 2, 60, name="old"))]])
    write_native_generations(uri, SECOND, [[Put(people(3, name="old"))], [Put(people(61, name="old"))]])
    add_backfilled_column(uri)
    fresh = people(2, 60, 62, name="new").append_column(pa.field("extra", pa.int32()), pa.array([7, 8, 9], pa.int32()))
    write_native_generations(uri, REGION, [[Put(fresh)]])

    report = merge(uri, way)

    assert rows(uri) == {
        1: ("old", 1001), 2: ("new", 7), 3: ("old", 1003), 60: ("new", 8), 61: ("old", None), 62: ("new", 9),
    }  # fmt: skip
    assert {region.verdict for region in report.regions} == {Verdict.COMPLETE}
    assert {region.merged_after for region in report.regions} == {2}


def test_value_that_changes_while_the_merge_runs_is_inherited_as_it_is_then(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, name="g1"))]])
    add_backfilled_column(uri)

    def backfill_again() -> None:
        lance.dataset(uri).update({"extra": "5"}, where="id = 1")

    report = merge_until(uri, ArmedFailpoints().arm(MERGE_COMMIT, backfill_again), way=way)

    assert report.commits[0].attempts == 2
    assert rows(uri) == {1: ("g1", 5), 2: ("p2", 1002)}


def test_composite_key_inherits_by_the_whole_key(tmp_path, way):
    uri = str(tmp_path / "t")
    marked = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=marked),
            pa.field("part", pa.string(), nullable=False, metadata=marked),
            pa.field("v", pa.int64()),
        ]
    )
    lance.write_dataset(pa.table({"id": [1, 1, 2], "part": ["a", "b", "a"], "v": [1, 2, 3]}, schema=schema), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    write_native_generations(
        uri, REGION, [[Put(pa.table({"id": [1, 2], "part": ["b", "b"], "v": [20, 40]}, schema=schema))]]
    )
    lance.dataset(uri).add_columns(pa.field("extra", pa.string()))
    lance.dataset(uri).update({"extra": "concat(part, '!')"})

    merge(uri, way)

    found = lance.dataset(uri).to_table().sort_by([("id", "ascending"), ("part", "ascending")])
    assert list(zip(*found.to_pydict().values(), strict=True)) == [
        (1, "a", 1, "a!"), (1, "b", 20, "b!"), (2, "a", 3, "a!"), (2, "b", 40, None),
    ]  # fmt: skip


def test_dropped_column_is_ignored_by_its_id(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, 9, name="g1"))]])
    lance.dataset(uri).drop_columns(["score"])

    assert merge(uri, way).outcome is JobOutcome.DONE

    assert rows(uri) == {1: ("g1",), 2: ("p2",), 9: ("g1",)}


def test_column_made_anew_under_a_dropped_name_takes_no_old_value(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, 9, name="g1"))]])
    lance.dataset(uri).drop_columns(["name"])
    lance.dataset(uri).add_columns(pa.field("name", pa.string()))

    assert merge(uri, way).outcome is JobOutcome.DONE

    assert rows(uri) == {1: (None,), 2: (None,), 9: (None,)}


def test_renamed_column_is_mapped_by_its_id(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, 9, name="g1"))]])
    lance.dataset(uri).alter_columns({"path": "name", "name": "title"})
    lance.dataset(uri).alter_columns({"path": "title", "name": "label"})

    assert merge(uri, way).outcome is JobOutcome.DONE

    assert rows(uri) == {1: ("g1",), 2: ("p2",), 9: ("g1",)}
    assert "label" in lance.dataset(uri).schema.names


def test_new_column_with_the_id_of_a_dropped_one_parks_the_region(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, 9, name="g1"))]])
    old_id = {field.name(): field.id() for field in lance.dataset(uri).lance_schema.fields()}["score"]
    lance.dataset(uri).drop_columns(["score"])
    lance.write_dataset(people(3).drop_columns(["score"]), uri, mode="append")
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).add_columns(pa.field("weight", pa.float64()))
    new_id = {field.name(): field.id() for field in lance.dataset(uri).lance_schema.fields()}["weight"]
    assert new_id == old_id

    report = merge(uri, way)

    assert report.outcome is JobOutcome.BLOCKED
    assert report.regions[0].verdict is Verdict.PARKED
    assert "no retained version proves" in report.regions[0].evidence
    assert lance.dataset(uri).to_table().column("weight").null_count == 3


@pytest.mark.parametrize(("columns", "dropped"), [("id stock price", ""), ("id price", "stock")])
def test_columns_that_an_overwrite_numbered_anew_park_the_region(tmp_path, way, columns, dropped):
    """Their ids meant other columns afterwards: prices became stocks, or were left out as those of a dropped column."""
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("stock", pa.int64()), ("price", pa.int64())])
    schema = schema if dropped else pa.schema([schema.field(name) for name in ("id", "price", "stock")])
    table = Table.create(uri, schema, key="id")
    if dropped:
        lance.dataset(uri).drop_columns([dropped])
    flushed = pa.schema([field for field in schema if field.name != dropped])
    with table.writer() as writer:
        writer.put(pa.table([[1], *([10 * place] for place in range(1, len(flushed)))], schema=flushed))
        writer.flush()
    content = pa.schema([schema.field(name) for name in columns.split()])
    lance.write_dataset(pa.table([[2], *([0] for _ in content.names[1:])], schema=content), uri, mode="overwrite")
    table.enable(key="id")
    table.thaw(Decision(Choice.RESTORE_PROGRESS, "someone", reason="the rows are wanted"))

    report = merge(uri, way)

    assert report.regions[0].verdict is Verdict.PARKED
    assert "no retained version proves" in report.regions[0].evidence
    assert lance.dataset(uri).count_rows() == 1
    with pytest.raises(InvalidRequestError, match="no retained version proves"):
        Table.open(uri).to_arrow()


def test_retyped_column_parks_the_region_with_both_types(tmp_path, way):
    uri, other = str(tmp_path / "t"), str(tmp_path / "other")
    make_people_table(uri, rows=people(1))
    write_native_generations(uri, REGION, [[Put(people(1, name="g1"))]])
    generation = Table.open(uri).opened.manifests.load(REGION).flushed_generations[0].path
    address = f"{uri}/_mem_wal/{REGION}/{generation}"
    retyped = lance.dataset(address).to_table()
    score = retyped.schema.get_field_index("score")
    retyped = retyped.set_column(score, pa.field("score", pa.int32()), pa.array([7], pa.int32()))
    lance.write_dataset(retyped, other)
    lance.write_dataset(retyped, address, mode="overwrite")

    report = merge(uri, way)

    assert report.regions[0].verdict is Verdict.PARKED
    assert "double in the base table and int32 here" in report.regions[0].evidence


def test_drifted_generation_is_planned_alone_and_the_plan_names_the_column(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri)
    write_native_generations(uri, REGION, [[Put(people(1))], [Put(people(2))]])
    lance.dataset(uri).add_columns(pa.field("extra", pa.int32()))
    admin = Table.open(uri)

    report = admin.run(MergeRequest())

    assert [commit.marks for commit in report.commits] == [{REGION: 1}, {REGION: 2}]
    assert report.passes == 2


@pytest.mark.parametrize("kind", ["struct", "list"])
def test_field_inside_made_anew_under_a_dropped_name_takes_no_old_value(tmp_path, way, kind):
    uri = str(tmp_path / "t")
    place = pa.struct([("city", pa.string()), ("code", pa.int64())])
    column = pa.field("place", place if kind == "struct" else pa.list_(place))

    def written(code: int, *ids: int) -> pa.Table:
        value = {"city": "here", "code": code}
        values = pa.array([value if kind == "struct" else [value]] * len(ids), column.type)
        return people(*ids).append_column(column, values)

    lance.write_dataset(written(1, 1, 2), uri)
    lance.dataset(uri).initialize_mem_wal(unsharded=True)
    write_native_generations(uri, REGION, [[Put(written(77, 1, 3))]])
    lance.dataset(uri).drop_columns(["place.code" if kind == "struct" else "place.item.code"])
    code = pa.struct([("code", pa.int64())])
    lance.dataset(uri).add_columns(pa.field("place", code if kind == "struct" else pa.list_(code)))
    assert lance.dataset(uri).schema.field("place").type == column.type
    write_native_generations(uri, SECOND, [[Put(written(5, 4))]])
    before = Table.open(uri).to_arrow().sort_by("id").select(["id", "place"]).to_pylist()

    report = merge(uri, way)

    assert {region.region_id: region.verdict for region in report.regions} == {
        REGION: Verdict.COMPLETE,
        SECOND: Verdict.COMPLETE,
    }
    assert lance.dataset(uri).to_table().sort_by("id").select(["id", "place"]).to_pylist() == before
    assert [str(row["place"]).count("None") for row in before] == [1, 1, 1, 0]


def test_keys_that_the_base_table_has_twice_freeze_it_where_it_supplies_values(tmp_path, way):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    lance.write_dataset(people(1, name="loaded twice"), uri, mode="append")
    write_native_generations(uri, REGION, [[Put(people(1, 3, name="g1"))]])
    add_backfilled_column(uri)

    with pytest.raises(DuplicateKeysError, match="duplicate-keys"):
        Table.open(uri).to_arrow()
    with pytest.raises(DuplicateKeysError, match="duplicate-keys"):
        merge(uri, way)

    with pytest.raises(FrozenError) as refused:
        merge(uri, way)
    assert refused.value.facts["causes"] == ["duplicate-keys"]
    assert lance.dataset(uri).count_rows() == 3
