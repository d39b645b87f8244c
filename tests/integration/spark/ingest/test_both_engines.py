"""A batch is the same batch for a process and for executors: one may go on where the other stopped."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.arrow_rows import ArrowRows
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import BatchRequest, ingest_rows
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.sharing.place import Engine
from memwal_core.reader.merged import MergedReader
from memwal_core.spark.ingest.frame import FrameBatch, _FrameRows, ingest_frame
from memwal_core.table import Table
from testkit.tables.people import PRIMARY_KEY_METADATA

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
KEY = {"number": pa.int64(), "name": pa.string(), "raw": pa.binary(), "flag": pa.bool_()}
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind, nullable=False, metadata=PRIMARY_KEY_METADATA) for name, kind in KEY.items()),
        pa.field("value", pa.float64()),
    ]
)
BATCH = BatchId("stream", "b")


def rows() -> pa.Table:
    """Rows with narrower types than the table has, keys that come again, and an order that has every odd value."""
    numbers = [each % 40 for each in range(100)]
    order = [None, float("nan"), -1.0, 0.0, float("inf"), 2.5, -float("inf")]
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "name": [f"n{number % 7}" for number in numbers],
            "raw": [bytes([number]) for number in numbers],
            "flag": [number % 2 == 0 for number in numbers],
            "value": [float(each) for each in range(100)],
            "at": [order[each % len(order)] for each in range(100)],
        }
    )


def made(uri: str) -> BaseTable:
    return Table.create(uri, SCHEMA, key=list(KEY), buckets=3).base


def test_both_count_the_same_and_write_the_same(spark: SparkSession, tmp_path: Path) -> None:
    here, there = made(str(tmp_path / "here.lance")), made(str(tmp_path / "there.lance"))
    frame = spark.createDataFrame(rows()).coalesce(1)
    asked = BatchRequest(BATCH, order_by="at")
    onto = FrameBatch(BATCH, order_by="at")
    admission = RowAdmission.of(here)

    counted = ArrowRows(rows(), admission, here, asked).count()
    frames = _FrameRows(frame, admission, here, onto)
    with frames.kept():
        assert frames.count() == counted
    assert sum(each.rows.rows for each in counted.regions.values()) == 100

    ingest_rows(ArrowRows(rows(), admission, here, asked), admission, here, asked)
    ingest_frame(frame, there, onto)
    found = [MergedReader(each).to_arrow().sort_by("number") for each in (here, there)]
    assert found[0].equals(found[1])
    assert found[0].num_rows == 40


def test_columns_are_those_of_the_table_whatever_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Names of routing, and names that differ in case only, ended as a Spark that may answer later."""
    names = ["Id", "id", "__order", "__sequence", "__REGION", "__corrupt", "__key_hash", "__task", "column0", "__place"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    given = pa.table({**{name: [number, number, number] for number, name in enumerate(names)}, "Id": [1, 1, 2]})
    given = given.set_column(8, "column0", pa.array([1, 2, 3])).append_column("AT", pa.array([2, 1, 1]))
    found = []
    for engine in ("process", "spark"):
        table = Table.create(str(tmp_path / engine), schema, key="Id", buckets=2).base
        if engine == "process":
            admission, asked = RowAdmission.of(table), BatchRequest(BATCH, order_by="AT")
            ingest_rows(ArrowRows(given, admission, table, asked), admission, table, asked)
        else:
            assert ingest_frame(spark.createDataFrame(given), table, FrameBatch(BATCH, order_by="AT")).rows_read == 3
        found.append(MergedReader(table).to_arrow().sort_by("Id"))
    assert found[0].equals(found[1])
    assert found[0].column("column0").to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("sql", "asked", "what"),
    [
        ("1 at, 2 at", {"order_by": "at"}, "exactly one column"),
        ("1.5D value", {}, "does not have the columns"),
        ("interval '1' year at", {}, "does not hand on values of this type"),
        ("time'10:11:12' at", {}, "does not hand on values of this type"),
        ("array(named_struct('a', time'10:11:12')) at", {}, "does not hand on values of this type"),
    ],
)
def test_frame_that_spark_cannot_tell_apart_or_hand_on_is_refused_for_good(
    spark: SparkSession, tmp_path: Path, sql: str, asked: dict[str, str], what: str
) -> None:
    """It was called a failure of Spark, after which the batch should be run again."""
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("value", pa.float64())]), key="id").base
    frame = spark.sql(f"select 1L id, 0.5D value, {sql}")
    with pytest.raises(InvalidRequestError, match=what):
        ingest_frame(frame, table, FrameBatch(BATCH, **asked))


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time64("us"), pa.time64("ns"), pa.date64()])
def test_times_and_dates_of_spark_go_into_columns_of_another_unit(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    """Spark has one form of each, so that no frame fitted columns of the others."""
    value, found = (
        ("date'2026-01-02'", date(2026, 1, 2)) if kind == pa.date64() else ("time'10:11:12'", time(10, 11, 12))
    )
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", kind)]), key="id").base
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        ingest_frame(spark.sql(f"select 1L id, {value} v"), table, FrameBatch(BATCH))
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
    assert MergedReader(table).to_arrow().to_pylist() == [{"id": 1, "v": found}]


def test_order_of_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    """It was a KeyError."""
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), key="id").base
    given = pa.Table.from_arrays([pa.array([1]), pa.array([1]), pa.array([2])], names=["id", "at", "at"])
    admission, asked = RowAdmission.of(table), BatchRequest(BATCH, order_by="at")
    with pytest.raises(InvalidRequestError, match="exactly one column"):
        ingest_rows(ArrowRows(given, admission, table, asked), admission, table, asked)


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "lance"])
def test_last_row_of_a_key_wins_in_the_order_of_places_and_names_whatever_their_sizes(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Spark reads the largest file first: rows of small files won over newer ones."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    sizes = {"9 first": 20, "1#/b c": 1, "1#/b!": 2000}
    places = [f"9 first.{form}", "1#"]
    if form == "lance":
        sizes, places = {f"{number}": 1 for number in range(12)}, ["rows.lance"]
    for number, (name, size) in enumerate(sizes.items()):
        given = pa.table({"id": [0] * 2 + [1000 * number + each for each in range(1, size)]}, schema=schema.remove(1))
        given = given.append_column("name", [[f"{number} no", *[f"{number}"] * size]])
        write(given, tmp_path, name, form)
    found = {}
    for engine in (Engine.LOCAL, Engine.SPARK):
        table = Table.create(str(tmp_path / f"t.{engine}"), schema, key="id", buckets=2)
        request = IngestRequest(
            sources=tuple(str(tmp_path / each) for each in places), format=SourceFormat(form), batch="b", engine=engine
        )
        if engine is Engine.SPARK or form in ("parquet", "lance"):
            table.run(request)
            found[engine] = table.lookup(pa.table({"id": [0]})).to_pylist()[0]["name"]
    assert set(found.values()) == {str(len(sizes) - 1)}


def write(rows: pa.Table, directory: Path, name: str, form: str) -> None:
    """Write rows as a file, or add them to the one Lance table."""
    path = directory / f"{name}.{form}"
    path.parent.mkdir(exist_ok=True)
    if form == "parquet":
        pq.write_table(rows, path)
    elif form == "csv":
        csv.write_csv(rows, path)
    elif form == "json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    else:
        lance.write_dataset(rows, str(directory / "rows.lance"), mode="append")


def test_what_lies_in_directories_of_a_directory_is_read_unless_hidden(spark: SparkSession, tmp_path: Path) -> None:
    """Spark left it out, so that a batch had fewer rows once it was large enough for Spark."""
    schema = pa.schema([("id", pa.int64()), ("part", pa.int32())])
    plain, divided = tmp_path / "plain", tmp_path / "divided"
    hidden = ["_hidden/c.parquet", ".d.parquet", "e.parquet._COPYING_"]
    for number, name in enumerate(["a.parquet", "deep/er/b.parquet", *hidden]):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number], "part": pa.array([7], pa.int32())}), plain / name)
    (plain / "_SUCCESS").touch()
    for number in range(2):
        (divided / f"part={number}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), divided / f"part={number}" / "a.parquet")
    found = []
    for place, engine in ((plain, Engine.LOCAL), (plain, Engine.SPARK), (divided, Engine.SPARK)):
        table = Table.create(str(tmp_path / f"{place.name}.{engine}"), schema, key="id", buckets=2)
        table.run(IngestRequest(sources=(str(place),), format=SourceFormat.PARQUET, batch="b", engine=engine))
        found.append(sorted((row["id"], row["part"]) for row in table.to_arrow().to_pylist()))
    assert found == [[(0, 7), (1, 7)], [(0, 7), (1, 7)], [(0, 0), (1, 1)]]


def test_a_lance_table_brings_each_of_its_columns_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """An instant ended Spark with an assertion; a column without a type there was said to be missing."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("half", pa.float16())])
    rows = pa.table({"id": [1], "at": [-1], "half": np.array([1.5], np.float16)}, schema)
    lance.write_dataset(rows, str(tmp_path / "all.lance"))
    lance.write_dataset(rows.select(["id", "at"]), str(tmp_path / "some.lance"))
    whole = Table.create(str(tmp_path / "whole"), schema, key="id", buckets=2)
    some = Table.create(str(tmp_path / "some"), schema.remove(2), key="id", buckets=2)

    with pytest.raises(InvalidRequestError, match="no such type") as refused:
        whole.run(IngestRequest(sources=(str(tmp_path / "all.lance"),), batch="a", engine=Engine.SPARK))
    some.run(IngestRequest(sources=(str(tmp_path / "some.lance"),), batch="a", engine=Engine.SPARK))

    assert refused.value.facts["types"] == {"half": "halffloat"}
    assert some.to_arrow(consistency="durable").to_pylist() == rows.select(["id", "at"]).to_pylist()


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_types_that_spark_lacks_come_in_as_what_it_has(spark: SparkSession, tmp_path: Path, form: str) -> None:
    kinds = {f"u{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)}
    schema = pa.schema([*kinds.items(), ("raw", pa.binary(2))])
    most = {name: [0, 2 ** int(name[1:]) - 1] for name in kinds}
    given = pa.table({**most, "raw": [b"ab", None]}, schema=schema)
    if form == "parquet":
        pq.write_table(given, tmp_path / "rows.parquet")
    elif form == "csv":
        csv.write_csv(given.set_column(4, "raw", pa.array(["ab", None])), tmp_path / "rows.csv")
    else:
        rows = [{**row, "raw": row["raw"] and "YWI="} for row in given.to_pylist()]
        (tmp_path / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    table = Table.create(str(tmp_path / "t"), schema, key="u64", buckets=2)
    table.run(IngestRequest(sources=(str(tmp_path / f"rows.{form}"),), batch="b", engine=Engine.SPARK))
    assert table.to_arrow().sort_by("u64").to_pylist() == given.to_pylist()


D8 = pa.decimal128(8, 2)
US, NS = pa.timestamp("us"), pa.timestamp("ns")


@pytest.mark.parametrize(
    ("form", "kind", "text", "stored"),
    [
        ("csv", D8, "1.239", None),
        ("csv", D8, "1239e-3", None),
        ("csv", D8, "123e-2", "1.23"),
        ("csv", D8, "1.2300", "1.23"),
        ("csv", pa.decimal128(38, 2), "1.239", None),
        ("csv", D8, '"1,5"', None),
        ("csv", D8, '"-1,50"', None),
        ("csv", D8, '"-1,234.5"', "-1234.50"),
        ("csv", D8, '"1,00,000"', "100000.00"),
        ("csv", pa.uint64(), "1.5", None),
        ("csv", US, "2024-01-01T00:00:00.123456789", None),
        ("csv", US, "2024-01-01T00:00:00.123456000", "2024-01-01 00:00:00.123456"),
        ("csv", NS, "2024-01-01 00:00:00.123456789", None),
        ("csv", pa.date32(), "2024-01-01T10:00:00", None),
        ("csv", pa.date32(), "2024-01-01T00:00:00", "2024-01-01"),
        ("csv", pa.float32(), "1e300", None),
        ("csv", pa.float32(), "0.1", "0.10000000149011612"),
        ("json", D8, "1.239", None),
        ("json", D8, '"1.239"', None),
        ("json", D8, '"1,5"', None),
        ("json", pa.list_(D8), "[null, 1.239]", None),
        ("json", pa.list_(D8), "[null, 1.23]", "[None, Decimal('1.23')]"),
        ("json", pa.struct([("a", US), ("b", pa.string())]), '{"a": "2024-01-01T00:00:00.1234567", "b": ""}', None),
        ("json", pa.struct([("a", D8), ("b", pa.string())]), '{"b": "1.239"}', "{'a': None, 'b': '1.239'}"),
        ("json", pa.string(), '"2024-01-01T00:00:00.123456789"', "2024-01-01T00:00:00.123456789"),
    ],
)
def test_text_that_a_column_holds_in_part_is_refused(
    spark: SparkSession, tmp_path: Path, form: str, kind: pa.DataType, text: str, stored: str | None
) -> None:
    """Spark rounded decimals or passed over their commas, cut nanoseconds and times of day, and was content."""
    file = tmp_path / f"rows.{form}"
    file.write_text(f"id,v\n1,{text}\n2,\n" if form == "csv" else f'{{"id": 1, "v": {text}}}\n{{"id": 2}}\n')
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", kind)]), key="id")
    request = IngestRequest(sources=(str(file),), batch="b", engine=Engine.SPARK)
    if stored is None:
        with pytest.raises(InvalidRequestError, match="do not fit the type of their column") as caught:
            table.run(request)
        assert caught.value.facts["rows"] == {"v": 1}
        assert table.count() == 0
    else:
        table.run(request)
        assert [str(row["v"]) for row in table.to_arrow().sort_by("id").to_pylist()] == [stored, "None"]


def test_decimals_are_those_of_the_locale_that_is_told(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for number, text in enumerate(["1.239", "1,239", "1.5"]):
        (tmp_path / f"{number}.csv").write_text(f"id;v\n1;{text}\n")
        table = Table.create(str(tmp_path / f"t{number}"), pa.schema([("id", pa.int64()), ("v", D8)]), key="id")
        asked = {"batch": "b", "engine": Engine.SPARK, "options": {"locale": "de-DE", "sep": ";"}}
        request = IngestRequest(sources=(str(tmp_path / f"{number}.csv"),), **asked)
        try:
            table.run(request)
            found += [str(row["v"]) for row in table.to_arrow().to_pylist()]
        except InvalidRequestError as error:
            found.append(error.what)
    refused = "values of the source do not fit the type of their column; the whole batch was refused"
    assert found == ["1239.00", refused, refused]


INNER = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.int64())])))])


@pytest.mark.parametrize(
    ("nested", "unknown"),
    [
        ('{"a": 1, "b": [{"c": 2}]}', 0),
        ('{"a": 1}', 0),
        ('{"a": 1, "other": 2}', 1),
        ('{"A": 1}', 1),
        ('{"b": [{"c": 1}, {"d": 2, "e": {"f": 3}}]}', 2),
    ],
)
def test_nested_fields_that_the_table_lacks_refuse_the_batch(
    spark: SparkSession, tmp_path: Path, nested: str, unknown: int
) -> None:
    """They were left out without a word."""
    file = tmp_path / "rows.json"
    file.write_text(f'{{"id": 1, "v": {nested}}}\n{{"id": 2}}\n')
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", INNER)]), key="id")
    request = IngestRequest(sources=(str(file),), batch="b", engine=Engine.SPARK)
    if not unknown:
        table.run(request)
        assert table.count() == 2
        return
    with pytest.raises(InvalidRequestError, match="nested values") as caught:
        table.run(request)
    assert caught.value.facts["unknown_fields"] == {"v": unknown}
    assert table.count() == 0


def test_instants_that_spark_wrote_are_instants(spark: SparkSession, tmp_path: Path) -> None:
    """A small batch was read without Spark, which took them for times without a zone, and was refused."""
    moments = [datetime(1990, 1, 1, 12, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
    frame = spark.createDataFrame(list(enumerate(moments)), "id long, v timestamp")
    frame.write.option("outputTimestampType", "INT96").parquet(str(tmp_path / "rows"))
    kind = pa.timestamp("us", "UTC")
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("v", kind)]), key="id")

    table.run(IngestRequest(sources=(str(tmp_path / "rows"),), format=SourceFormat.PARQUET, batch="b"))

    found = table.to_arrow().sort_by("id")
    assert found["v"].cast(pa.int64()).to_pylist() == [round(each.timestamp() * 1e6) for each in moments]
    without = Table.create(str(tmp_path / "w"), pa.schema([("id", pa.int64()), ("v", US)]), key="id")
    with pytest.raises(InvalidRequestError, match="by itself"):
        without.run(
            IngestRequest(
                sources=(str(tmp_path / "rows"),), format=SourceFormat.PARQUET, batch="b", engine=Engine.LOCAL
            )
        )


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_values_that_directories_name_are_what_the_table_takes(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """`v=007` was a number, which a column of text refused."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int32())])
    directory = tmp_path / "rows" / "v=007" / "n=08"
    directory.mkdir(parents=True)
    write(pa.table({"id": [1]}), directory, "a", form)
    table = Table.create(str(tmp_path / "t"), schema, key="id")
    asked = {"format": SourceFormat(form), "batch": "b", "engine": Engine.SPARK}
    table.run(IngestRequest(sources=(str(tmp_path / "rows"),), **asked))
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "007", "n": 8}]


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
def test_names_that_spark_cannot_tell_apart_are_named(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """The source could not be read, or had columns that the table does not have, and lacked the same ones."""
    schema = pa.schema([("id", pa.int64()), ("Id", pa.int64())])
    write(pa.table({"id": [1], "Id": [2]}), tmp_path, "a", form)
    table = Table.create(str(tmp_path / "t"), schema, key="id")
    request = IngestRequest(sources=(str(tmp_path / f"a.{form}"),), batch="b", engine=Engine.SPARK)
    with pytest.raises(InvalidRequestError, match="differ in case only") as caught:
        table.run(request)
    assert caught.value.facts["columns"] == ["Id", "id"]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        table.run(request)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert table.to_arrow().to_pylist() == [{"id": 1, "Id": 2}]


@pytest.mark.parametrize("kind", [pa.float16(), pa.decimal256(50, 2), pa.time64("us"), pa.timestamp("ns")])
def test_type_that_only_this_process_reads_leads_to_its_engine(
    spark: SparkSession, tmp_path: Path, kind: pa.DataType
) -> None:
    """The advice was to correct the path, the format or the options."""
    given = pa.table({"id": [1], "v": pa.nulls(1, kind)})
    pq.write_table(given, tmp_path / "a.parquet")
    table = Table.create(str(tmp_path / "t"), given.schema, key="id")
    request = IngestRequest(sources=(str(tmp_path / "a.parquet"),), batch="b", engine=Engine.SPARK)
    with pytest.raises(InvalidRequestError, match="has no such type") as caught:
        table.run(request)
    assert "engine local" in caught.value.remedy
    table.run(request.model_copy(update={"engine": Engine.LOCAL}))
    assert table.to_arrow().to_pylist() == given.to_pylist()
