"""What the sink does with staged rows, step by step and without Spark: once, whatever is repeated or dies."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError, MemwalError
from memwal_core.format.paths import ROWS_STAGING_DIRECTORY
from memwal_core.ids import IdSource
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.region import ManifestStore
from memwal_core.spark.data_source import MemWalDataSource
from memwal_core.spark.options import WriteOptions
from memwal_core.spark.writing.commit import BatchCommit, directory_of, refuse_problems
from memwal_core.spark.writing.staging import StagedMessage, StagedRows, Stager
from memwal_core.table import Table
from testkit.faults.faulty_store import WRITES, FaultyStore
from testkit.tables.people import PEOPLE, make_people_table, people, reopened
from testkit.tables.readable import as_model

DEATHS = 6
"""Points in a commit at which the process dies, evenly over its writes."""


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "t"), rows=people(*range(10)))


def stage(table: BaseTable, batch: BatchId, *tasks: pa.Table, spill_bytes: int = 1 << 20) -> list[StagedRows]:
    """Stage rows as the tasks of one attempt do."""
    staged: list[StagedRows] = []
    for rows in tasks:
        stager = Stager(table, RowAdmission.of(table), directory_of(batch), spill_bytes)
        assert stager.run(rows.to_batches()) is None
        staged += stager.staged
    return staged


def commit(table: BaseTable, batch: BatchId, staged: Sequence[StagedRows]) -> None:
    BatchCommit(table, batch, WriteOptions(table.uri)).run(staged)


def model(table: BaseTable) -> dict[int, str]:
    return as_model(Table.open(table.uri).to_arrow())


def generations(table: BaseTable) -> int:
    store = ManifestStore(table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng)
    return sum(len(each.flushed_generations) for each in store.load_many(store.region_ids()))


def staged_files(table: BaseTable) -> list[str]:
    return [info.path for info in table.store.list_objects(ROWS_STAGING_DIRECTORY)]


def test_last_row_of_a_key_in_the_order_of_the_tasks_wins(table: BaseTable) -> None:
    batch = BatchId("s", "b")
    tasks = [
        people(*range(5, 40), name="first"),
        people(20, 20, 21, name="second"),
        people(*range(30, 35), name="third"),
    ]

    commit(table, batch, stage(table, batch, *tasks, spill_bytes=200))

    expected = {key: f"p{key}" for key in range(5)} | dict.fromkeys(range(5, 40), "first")
    assert model(table) == expected | {20: "second", 21: "second"} | dict.fromkeys(range(30, 35), "third")
    assert staged_files(table) == []


def test_unsigned_keys_are_written_that_spark_has_as_decimals(tmp_path: Path) -> None:
    largest = 2**64 - 1
    schema = pa.schema([pa.field("id", pa.uint64(), nullable=False), ("n", pa.int64())])
    table = BaseTable.open(Table.create(str(tmp_path / "u"), schema, key="id", buckets=2).uri)
    batch = BatchId("s", "b")
    keys = pa.array([1, largest, 1], pa.decimal128(20, 0))

    commit(table, batch, stage(table, batch, pa.table({"id": keys, "n": [1, 2, 3]})))

    assert Table.open(table.uri).to_arrow().sort_by("id").to_pydict() == {"id": [1, largest], "n": [3, 2]}


def test_batch_that_is_written_is_not_written_again_after_newer_ones(table: BaseTable) -> None:
    for number, name in enumerate(("old", "new")):
        batch = BatchId.numbered("query", number)
        commit(table, batch, stage(table, batch, people(*range(4), name=name)))
    written, before = generations(table), model(table)

    again = BatchId.numbered("query", 0)
    with pytest.raises(InvalidRequestError, match="a later one has begun"):
        commit(table, again, stage(table, again, people(*range(4), name="old")))

    assert model(table) == before == {key: "new" if key < 4 else f"p{key}" for key in range(10)}
    assert generations(table) == written
    assert staged_files(table) == []


def test_newest_batch_is_repeated_but_not_with_more_rows_than_it_had(table: BaseTable) -> None:
    """A checkpoint was set back by one batch: the next had the rows of that one and others, which were lost."""
    batch = BatchId.numbered("query", 0)
    commit(table, batch, stage(table, batch, people(1, 2, 2, name="first")))
    before = model(table)

    for rows in (people(1, 2, 2, name="again"), people(1, name="again")):
        commit(table, batch, stage(table, batch, rows))
    BatchCommit(table, batch, WriteOptions(table.uri)).run([], repeated=3)
    with pytest.raises(InvalidRequestError, match="it had fewer rows") as caught:
        commit(table, batch, stage(table, batch, people(1, 2, 2, 3, name="more")))
    with pytest.raises(InvalidRequestError, match="it had fewer rows"):
        BatchCommit(table, batch, WriteOptions(table.uri)).run([], repeated=4)

    assert (caught.value.facts["rows_then"], caught.value.facts["rows_now"]) == (3, 4)
    assert model(table) == before
    named = BatchId("stream", "name")
    commit(table, named, stage(table, named, people(1, name="named")))
    commit(table, named, stage(table, named, people(1, 2, name="more")))
    assert model(table) == before | {1: "named"}


def test_batch_that_was_begun_is_finished_with_its_first_rows(table: BaseTable) -> None:
    batch = BatchId.numbered("query", 0)
    first = stage(table, batch, people(*range(40), name="first"))
    store = FaultyStore(table.store)
    store.fail(*WRITES, path=lambda path: "/wal/" in path, nth=2, times=None)  # one region gets its rows
    with pytest.raises(MemwalError):
        commit(reopened(table, store), batch, first)
    assert BatchRecords(table.store, table.clock).done(batch) is None

    commit(table, batch, stage(table, batch, people(*range(30), name="other")))

    assert model(table) == dict.fromkeys(range(40), "first")
    assert staged_files(table) == []


def test_process_that_dies_at_any_write_leaves_a_batch_that_the_next_one_finishes(tmp_path: Path) -> None:
    def fresh(name: str) -> tuple[BaseTable, FaultyStore]:
        made = make_people_table(str(tmp_path / name), rows=people(*range(10)), buckets=2)
        return made, FaultyStore(made.store)

    table, store = fresh("healthy")
    batch = BatchId.numbered("query", 0)
    commit(reopened(table, store), batch, stage(table, batch, people(*range(20), name="x")))
    written, writes = generations(table), sum(call.operation in WRITES for call in store.calls)
    assert writes > DEATHS

    for death in range(1, writes, writes // DEATHS):
        table, store = fresh(str(death))
        staged = stage(table, batch, people(*range(20), name="x"))
        store.fail(*WRITES, nth=death, times=None)
        with contextlib.suppress(MemwalError):
            commit(reopened(table, store), batch, staged)
        commit(table, batch, stage(table, batch, people(*range(20), name="x")))
        assert model(table) == dict.fromkeys(range(20), "x")
        assert generations(table) <= written + 2, "more was repeated than the share of each region at the death"
        assert staged_files(table) == []


def test_rows_that_vanished_are_taken_from_the_next_attempt_if_they_are_the_same(table: BaseTable) -> None:
    batch = BatchId.numbered("query", 0)
    first = stage(table, batch, people(*range(20), name="same"))
    store = FaultyStore(table.store)
    store.fail(*WRITES, path=lambda path: "/wal/" in path, times=None)
    with pytest.raises(MemwalError):
        commit(reopened(table, store), batch, first)
    for path in {piece.path for piece in first}:
        table.store.delete(path)

    with pytest.raises(InvalidRequestError, match="with other rows"):
        commit(table, batch, stage(table, batch, people(*range(21), name="same")))
    commit(table, batch, stage(table, batch, people(*reversed(range(20)), name="same")))

    assert model(table) == dict.fromkeys(range(20), "same")


def with_city(rows: pa.Table) -> pa.Table:
    return rows.append_column("city", pa.array(["Ulm"] * rows.num_rows))


def add_city(table: BaseTable) -> None:
    lance.dataset(table.uri).add_columns(pa.field("city", pa.string()))


def test_batch_staged_before_the_schema_changed_is_refused_and_written_by_the_next_attempt(table: BaseTable) -> None:
    batch = BatchId.numbered("query", 0)
    first = stage(table, batch, people(*range(20), name="first"))
    add_city(table)

    with pytest.raises(InvalidRequestError, match="columns"):
        commit(table, batch, first)
    commit(table, batch, stage(table, batch, with_city(people(*range(5), name="second"))))

    assert model(table) == {key: "second" if key < 5 else f"p{key}" for key in range(10)}


def test_batch_begun_before_the_schema_changed_is_finished_with_the_next_attempts_rows(table: BaseTable) -> None:
    batch = BatchId.numbered("query", 0)
    store = FaultyStore(table.store)
    store.fail(*WRITES, path=lambda path: "/wal/" in path, nth=2, times=None)  # one region gets its rows
    with pytest.raises(MemwalError):
        commit(reopened(table, store), batch, stage(table, batch, people(*range(20), name="x")))
    add_city(table)

    with pytest.raises(InvalidRequestError, match="with other rows"):
        commit(table, batch, stage(table, batch, with_city(people(*range(21), name="x"))))
    commit(table, batch, stage(table, batch, with_city(people(*range(20), name="x"))))

    assert model(table) == dict.fromkeys(range(20), "x")
    assert staged_files(table) == []


def is_region(path: str) -> bool:
    return path.startswith("_mem_wal/") and not path.startswith(ROWS_STAGING_DIRECTORY)


@pytest.mark.parametrize("is_begun", [False, True])
def test_rows_that_were_divided_by_another_spec_are_not_written_by_the_new_one(
    table: BaseTable, is_begun: bool
) -> None:
    """Bucket 3 of four became bucket 3 of eight, where half of its keys do not belong: readers showed them twice."""
    batch, rows = BatchId.numbered("query", 0), people(*range(20), name="x")
    store = FaultyStore(table.store)
    fails = is_region if is_begun else (lambda path: path.endswith("/begun.json"))
    store.fail(*WRITES, path=fails, times=None)
    with pytest.raises(MemwalError):
        commit(reopened(table, store), batch, stage(table, batch, rows))
    Table.open(table.uri).configuration.divide(["bucket(id, 8)"])

    def commit_by(spec_id: int) -> None:
        stager = Stager(table, RowAdmission.of(table, spec_id), directory_of(batch))
        assert stager.run(rows.to_batches()) is None
        BatchCommit(table, batch, WriteOptions(table.uri, spec_id=spec_id)).run(stager.staged)

    if is_begun:
        with pytest.raises(InvalidRequestError, match="region spec"):
            commit_by(2)
        commit_by(1)
    else:
        commit_by(2)

    manifests = ManifestStore(table.store, table.ids)
    written = [each for each in manifests.load_many(manifests.region_ids()) if each.flushed_generations]
    assert {each.region_spec_id for each in written} == {1 if is_begun else 2}
    assert len(written) == (4 if is_begun else 8)
    assert model(table) == dict.fromkeys(range(20), "x")


def test_one_bad_row_refuses_the_whole_batch(table: BaseTable) -> None:
    batch = BatchId("s", "b")
    bad = pa.table({"id": pa.array([1, None, 3]), "name": ["a", "b", "c"], "score": [1.0, 2.0, 3.0]})
    stager = Stager(table, RowAdmission.of(table), directory_of(batch))

    problem = stager.run(bad.to_batches())

    with pytest.raises(InvalidRequestError, match="nothing was written") as raised:
        refuse_problems([StagedMessage(None, stager.staged), StagedMessage(None, (), problem)], str(batch))
    assert raised.value.facts["column"] == "id"
    assert raised.value.facts["bad_rows"] == 1


def test_leftovers_of_earlier_batches_go_with_the_next(table: BaseTable) -> None:
    old, new = BatchId.numbered("query", 0), BatchId.numbered("query", 1)
    commit(table, old, stage(table, old, people(1, name="a")))
    stage(table, old, people(1, name="late"))  # a forgotten attempt of a task
    assert len(staged_files(table)) == 1

    commit(table, new, stage(table, new, people(2, name="b")))

    assert staged_files(table) == []


def test_deletes_are_rows_marked_in_a_column(table: BaseTable) -> None:
    batch = BatchId("s", IdSource().commit_id().hex())
    marked = people(1, 2, 30, name="x").append_column("gone", pa.array([True, False, False]))
    stager = Stager(table, RowAdmission.of(table, None, "gone"), directory_of(batch))
    assert stager.run(marked.to_batches()) is None

    BatchCommit(table, batch, WriteOptions(table.uri, delete_column="gone")).run(stager.staged)

    expected = {key: f"p{key}" for key in range(10) if key != 1}
    assert model(table) == expected | {2: "x", 30: "x"}
    assert PEOPLE.names == list(table.state().schema.names)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("name string, score double", {}, "next:"),
        ("id string, name string, score double", {}, "cast the column"),
        ("id long, name string, score double, more int", {}, "next:"),
        ("id long, name string, score double", {"batch": "21"}, "stream"),
        ("id long, name string, score double", {"nonsense": "1"}, "does not know these options"),
        ("id long, name string, score double", {"takeover": "perhaps"}, "unknown value"),
        ("id long, name string, score double", {"spec_id": "7"}, "next:"),
    ],
)
def test_write_that_cannot_succeed_is_refused_before_any_work(
    table: BaseTable, columns: str, options: dict[str, str], words: str
) -> None:
    fields = [field.split() for field in columns.split(", ")]
    kinds = {"long": LongType(), "int": IntegerType(), "string": StringType(), "double": DoubleType()}
    schema = StructType([StructField(name, kinds[kind]) for name, kind in fields])

    with pytest.raises(InvalidRequestError, match=words):
        MemWalDataSource(CaseInsensitiveDict({"uri": table.uri, **options})).writer(schema, overwrite=False)


def test_batches_of_a_streaming_query_cannot_be_named(table: BaseTable) -> None:
    source = MemWalDataSource(CaseInsensitiveDict({"uri": table.uri, "stream": "mine", "batch": "1"}))
    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    schema = schema.add("score", DoubleType())

    with pytest.raises(InvalidRequestError, match="leave out the options"):
        source.streamWriter(schema, overwrite=False)
