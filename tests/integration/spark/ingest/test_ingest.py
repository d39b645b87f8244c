"""Batches of DataFrames into regions: whole or not at all, once, and only with rows that fit."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.errors import ConflictError, InvalidRequestError, MemwalError
from memwal_core.format.paths import BATCHES_DIRECTORY
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.arrow_rows import ArrowRows
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import BatchRequest
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport
from memwal_core.ingest.source import Source, batch_of_files
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine
from memwal_core.quality.input_suite import frame_check
from memwal_core.reader.merged import MergedReader
from memwal_core.region import ManifestStore
from memwal_core.region.spec import bucket_spec
from memwal_core.spark.ingest.frame import FrameBatch, ingest_frame
from memwal_core.spark.ingest.inputs import read_source
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, Takeover
from testkit.s3_server import s3_server
from testkit.tables.people import PEOPLE, PRIMARY_KEY_METADATA, make_people_table, people
from tests.integration.spark.submitted import submit

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ROWS = 200


def batch_of(spark: SparkSession, name: str, rows: int = ROWS) -> DataFrame:
    return spark.range(rows).selectExpr("id", f"'{name}' as name", "cast(id as double) as score")


def run(frame: DataFrame, table: BaseTable, number: int, **request: object) -> IngestReport:
    return ingest_frame(frame, table, FrameBatch(BatchId.numbered("query", number), **request))


def names(table: BaseTable) -> dict[int, str]:
    rows = MergedReader(table).to_arrow()
    assert rows.num_rows == len(set(rows.column("id").to_pylist()))
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def regions(table: BaseTable) -> ManifestStore:
    return ManifestStore(table.store, table.ids)


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"), buckets=4)


def test_a_batch_is_written_once_whatever_came_after_it(table: BaseTable, spark: SparkSession) -> None:
    first = run(batch_of(spark, "old"), table, 0)
    second = run(batch_of(spark, "new", 100), table, 1)
    epochs = [manifest.writer_epoch for manifest in regions(table).load_many(regions(table).region_ids(), 4)]
    again = run(batch_of(spark, "old"), table, 0)

    assert (first.outcome, first.rows_read, first.rows_written, len(first.regions)) == (JobOutcome.DONE, 200, 200, 4)
    assert sum(region.rows for region in first.regions) == 200
    assert second.rows_written == 100
    assert (again.outcome, again.rows_written) == (JobOutcome.NOTHING_TO_DO, 0)
    assert "200 rows in 4 regions" in again.reason
    assert names(table) == {number: "new" if number < 100 else "old" for number in range(200)}
    assert epochs == [2] * 4


def test_a_batch_that_a_process_began_goes_on_in_spark_with_the_same_keys_only(
    table: BaseTable, spark: SparkSession
) -> None:
    """As many rows in the same regions, some keys twice: an exclusive or of their hashes took others for the same."""
    batch, admission = BatchId.numbered("query", 0), RowAdmission.of(table)
    rows = people(*range(ROWS), *range(ROWS))
    counted = ArrowRows(rows, admission, table, BatchRequest(batch)).count()
    BatchRecords(table.store, table.clock).begin(batch, {value: each.rows for value, each in counted.regions.items()})
    in_regions = {
        value: set(part.column("id").to_pylist())
        for value, part in admission.examine(people(*range(ROWS, 3 * ROWS))).parts
    }
    others = [
        key
        for value, part in admission.examine(people(*range(ROWS))).parts
        for key in sorted(in_regions[value])[: part.num_rows]
    ]
    same, other = (spark.createDataFrame(people(*keys, *keys).to_pandas()) for keys in (range(ROWS), others))

    with pytest.raises(InvalidRequestError, match="began this batch with other rows"):
        run(other, table, 0)
    assert run(same, table, 0).rows_written == 2 * ROWS


def test_the_same_batch_twice_at_once_leaves_the_rows_of_one(table: BaseTable, spark: SparkSession) -> None:
    frame = batch_of(spark, "a", 2000)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda _: run(frame, table, 0), range(2)))

    assert {report.outcome for report in reports} <= {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
    assert names(table) == dict.fromkeys(range(2000), "a")
    assert run(frame, table, 0).reason.startswith("the batch was written before: 2,000 rows in 4 regions")


def test_rows_that_change_between_their_check_and_their_write_do_not_count_as_written(
    table: BaseTable, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads again what an executor took along when it was lost; clearing the cache does the same."""
    changed = tmp_path / "changed"

    def but_the_last_if_changed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pc.less(batch.column("id"), ROWS - 1)) if changed.exists() else batch

    def change(done: int, _total: int) -> None:
        if not done:
            changed.touch()
            spark.catalog.clearCache()

    frame = batch_of(spark, "a")
    frame = frame.mapInArrow(but_the_last_if_changed, frame.schema)
    with pytest.raises(InvalidRequestError, match="not those that were checked"):
        run(frame, table, 0, progress=change)

    assert BatchRecords(table.store, table.clock).done(BatchId.numbered("query", 0)) is None


@pytest.mark.slow
def test_a_half_done_batch_goes_on_with_the_regions_that_are_missing(table: BaseTable, spark: SparkSession) -> None:
    run(batch_of(spark, "first"), table, 0)
    taken = regions(table).region_ids()[0]
    with RegionWriter.open(table, taken) as other:
        other.put(people(10**6, name="other"))
        with pytest.raises(ConflictError) as caught:
            run(batch_of(spark, "second"), table, 1)
        assert caught.value.facts["region_id"] == str(taken)
        with pytest.raises(InvalidRequestError, match="began this batch with other rows"):
            run(batch_of(spark, "second", 100), table, 1)
        other.flush()

    report = run(batch_of(spark, "second"), table, 1)

    assert report.outcome is JobOutcome.DONE
    assert [region.region_id for region in report.regions if not region.written_before] == [str(taken)]
    assert 0 < report.rows_written < 200
    assert names(table) == {**dict.fromkeys(range(200), "second"), 10**6: "other"}


def test_a_live_writer_of_others_is_stopped_if_that_is_asked_for(table: BaseTable, spark: SparkSession) -> None:
    run(batch_of(spark, "first"), table, 0)
    other = RegionWriter.open(table, regions(table).region_ids()[0])
    other.put(people(10**6, name="other"))

    run(batch_of(spark, "second"), table, 1, takeover=Takeover.FENCE)

    assert names(table) == {**dict.fromkeys(range(200), "second"), 10**6: "other"}


@pytest.mark.req("WRT-27")
def test_one_bad_row_refuses_the_whole_batch(table: BaseTable, spark: SparkSession) -> None:
    frame = batch_of(spark, "a").selectExpr("if(id = 77, null, id) as id", "name", "score")

    with pytest.raises(InvalidRequestError, match="nothing was written") as caught:
        run(frame, table, 0)

    assert caught.value.facts["rejected_rows"] == 1
    assert caught.value.facts["problems"] == ["a primary key value is NULL: column id"]
    assert caught.value.facts["sample_rows"] == [{"id": "NULL", "name": "a", "score": "77.0"}]
    assert regions(table).region_ids() == []
    assert not list(table.store.list_objects(BATCHES_DIRECTORY))


@pytest.mark.parametrize(
    ("columns", "fact"), [(["id", "name"], "missing"), (["id", "name", "score", "1 as x"], "unknown")]
)
def test_wrong_columns_are_refused_before_a_row_is_read(
    table: BaseTable, spark: SparkSession, columns: list[str], fact: str
) -> None:
    frame = batch_of(spark, "a").selectExpr("assert_true(false) as never", "*").selectExpr(*columns)

    with pytest.raises(InvalidRequestError) as caught:
        run(frame, table, 0)
    assert caught.value.facts[fact]


def test_dry_run_counts_rows_by_region_and_writes_nothing(table: BaseTable, spark: SparkSession) -> None:
    report = run(batch_of(spark, "a"), table, 0, dry_run=True)

    assert report.outcome is JobOutcome.PLANNED
    assert (report.rows_read, report.rows_written) == (200, 0)
    assert sum(region.rows for region in report.regions) == 200
    assert regions(table).region_ids() == []


def test_the_newest_row_of_a_key_wins_and_deletes_delete(table: BaseTable, spark: SparkSession) -> None:
    run(batch_of(spark, "old", 10), table, 0)
    rows = [(1, "c", 0.0, 3, False), (1, "d", 0.0, 4, False), (1, "b", 0.0, 1, False), (2, None, None, 1, True)]
    rows += [(3, None, None, 1, True), (3, "back", 0.0, 2, False)]
    frame = spark.createDataFrame(rows, "id long, name string, score double, at int, gone boolean").repartition(3)

    report = run(frame, table, 1, order_by="at", delete_column="gone")

    assert report.rows_written == 6
    assert sum(region.deletes for region in report.regions) == 2
    left = dict.fromkeys(range(10), "old") | {1: "d", 3: "back"}
    assert names(table) == {number: name for number, name in left.items() if number != 2}


def test_vectors_numbers_and_instants_come_out_as_they_went_in(tmp_path: Path, spark: SparkSession) -> None:
    schema = pa.schema(
        [
            pa.field("key", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
            pa.field("vector", pa.list_(pa.float32(), 4)),
            pa.field("count", pa.uint64()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("day", pa.date32()),
            pa.field("blob", pa.binary()),
            pa.field("price", pa.decimal128(12, 2)),
        ]
    )
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(schema.empty_table(), uri)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "key", table.state().field_ids, 3)])
    frame = spark.range(50).selectExpr(
        "concat('k', id) as key",
        "if(id = 7, null, array(cast(id as float), 1.5F, 2.5F, 3.5F)) as vector",
        "id * 1000 as count",
        "timestamp_micros(1700000000000001 + id) as at",
        "date_from_unix_date(cast(id as int)) as day",
        "cast(concat('b', id) as binary) as blob",
        "cast(id as decimal(12, 2)) as price",
    )

    run(frame, table, 0)

    rows = MergedReader(table).to_arrow().sort_by("count")
    assert rows.schema.remove_metadata().equals(schema, check_metadata=False)
    assert rows.column("vector").to_pylist() == [None if n == 7 else [float(n), 1.5, 2.5, 3.5] for n in range(50)]
    assert rows.column("at").cast(pa.int64()).to_pylist() == [1700000000000001 + n for n in range(50)]
    assert rows.column("blob").to_pylist() == [f"b{n}".encode() for n in range(50)]

    short = frame.selectExpr("key", "slice(vector, 1, if(key = 'k9', 3, 4)) as vector", "count", "at", "day", "blob",
                             "price")  # fmt: skip
    with pytest.raises(InvalidRequestError) as caught:
        run(short, table, 1)
    assert caught.value.facts["rejected_rows"] == 1
    assert caught.value.facts["sample_rows"][0]["key"] == "k9"


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "lance"])
def test_files_are_read_in_the_schema_of_the_table(
    table: BaseTable, spark: SparkSession, tmp_path: Path, form: str
) -> None:
    place = str(tmp_path / f"rows.{form}")
    rows = people(*range(30), name="a")
    if form == "csv":
        Path(place).write_text("name,score,id\n" + "".join(f"a,{n}.0,{n}\n" for n in range(30)))
    elif form == "json":
        Path(place).write_text("".join(json.dumps({"id": n, "name": "a", "score": n}) + "\n" for n in range(30)))
    elif form == "parquet":
        pq.write_table(rows, place)
    else:
        lance.write_dataset(rows, place)

    run(read_source(spark, Source([place]), PEOPLE), table, 0)

    assert names(table) == dict.fromkeys(range(30), "a")
    assert MergedReader(table).to_arrow().column("score").to_pylist().count(7.0) == 1


@pytest.mark.parametrize("form", ["csv", "json"])
def test_columns_that_only_steer_keep_their_own_types_in_text(
    table: BaseTable, spark: SparkSession, tmp_path: Path, form: str
) -> None:
    place = tmp_path / f"rows.{form}"
    rows = [(1, "ten", 10, False), (1, "nine", 9, False), (2, "gone", 1, True), (3, "stays", 1, False)]
    if form == "csv":
        lines = [f"{key},{name},1.5,{at},{str(gone).lower()}" for key, name, at, gone in rows]
        place.write_text("\n".join(["id,name,score,at,gone", *lines]) + "\n")
    else:
        keyed = [{"id": key, "name": name, "at": at, "gone": gone} for key, name, at, gone in rows]
        place.write_text("".join(json.dumps(row) + "\n" for row in keyed))

    run(read_source(spark, Source([str(place)]), PEOPLE, ("at", "gone")), table, 0, order_by="at", delete_column="gone")

    assert names(table) == {1: "ten", 3: "stays"}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "id,name,score\n1,a,1.0\nseven,b,2.0\n", "cannot be read as a row"),
        ("a.json", '{"id": 1, "name": "a"}\n{"id": [\n', "cannot be read as a row"),
        ("b.json", '{"id": 1, "name": "a"}\n{"name": "b"}\n', "primary key value is NULL"),
    ],
)
def test_records_that_are_no_rows_refuse_the_batch(
    table: BaseTable, spark: SparkSession, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(InvalidRequestError) as caught:
        run(read_source(spark, Source([str(tmp_path / name)]), PEOPLE), table, 0)
    assert problem in caught.value.facts["problems"][0]
    assert caught.value.facts["rejected_rows"] == 1
    assert regions(table).region_ids() == []


def test_texts_with_quotes_and_lines_come_out_of_csv_as_they_went_in(
    table: BaseTable, spark: SparkSession, tmp_path: Path
) -> None:
    """Quotes stayed doubled, and the second line of a text became a row of its own."""
    texts = ['a "b"', "a\n8,1.0,b", "a\\", "a,b", "a\r\nb"]
    place = tmp_path / "rows.csv"
    csv.write_csv(pa.table({"id": range(len(texts)), "score": [1.0] * len(texts), "name": texts}), place)

    run(read_source(spark, Source([str(place)]), PEOPLE), table, 0)
    assert names(table) == dict(enumerate(texts))

    place.write_text('id,score,name\n7,1.0,"a \\"b\\""\n')
    with pytest.raises(InvalidRequestError, match=r"rows\.csv"):
        run(read_source(spark, Source([str(place)]), PEOPLE), table, 1)
    (tmp_path / "open.csv").write_text('id,score,name\n8,1.0,"a\n9,1.0,b\n')
    with pytest.raises(InvalidRequestError, match="not closed"):
        read_source(spark, Source([str(tmp_path / "open.csv")]), PEOPLE)
    run(read_source(spark, Source([str(place)], options={"escape": "\\"}), PEOPLE), table, 2)
    assert names(table)[7] == 'a "b"'


@pytest.mark.parametrize("behind", [' {"id": 2}', '{"id": 2}', ', {"id": 2}', " CANARY", "}"])
def test_line_of_json_that_goes_on_behind_its_record_refuses_the_batch(
    spark: SparkSession, tmp_path: Path, behind: str
) -> None:
    """The second record of a line was lost without a word."""
    sound = ['{"id": 1, "name": "} {"}', '[{"id": 3}, {"id": 4}]', "", ' {"id": 5, "score": NaN} ']
    place = tmp_path / "rows.json"
    place.write_text("\n".join(sound))
    assert sorted(row.id for row in read_source(spark, Source([str(place)]), PEOPLE).collect()) == [1, 3, 4, 5]
    place.write_text("\n".join([*sound, '{"id": 1}' + behind]))

    with pytest.raises(InvalidRequestError, match="behind their record") as refused:
        read_source(spark, Source([str(place)]), PEOPLE)
    assert refused.value.facts["lines"] == 1
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_that_is_not_utf8_is_refused_unless_its_encoding_is_named(
    table: BaseTable, spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Each letter that Spark could not read became a question mark."""
    text = "id,name,score\n1,\u00e9 \ufffd,1.0\n" if form == "csv" else '{"id": 1, "name": "\u00e9 \ufffd"}\n'
    place = tmp_path / f"rows.{form}"
    place.write_bytes(text.replace(" \ufffd", "").encode("latin-1"))
    with pytest.raises(InvalidRequestError, match="not UTF-8"):
        read_source(spark, Source([str(place)]), PEOPLE)
    run(read_source(spark, Source([str(place)], options={"encoding": "ISO-8859-1"}), PEOPLE), table, 0)
    assert names(table) == {1: "\u00e9"}

    place.write_text(text, encoding="utf-8")
    run(read_source(spark, Source([str(place)]), PEOPLE), table, 1)
    assert names(table) == {1: "\u00e9 \ufffd"}


def test_unknown_columns_are_counted_and_missing_files_named(
    table: BaseTable, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "label": "a"}\n')
    with pytest.raises(InvalidRequestError) as caught:
        read_source(spark, Source([str(tmp_path / "a.json")]), PEOPLE)
    assert caught.value.facts["unknown_columns"] == 1
    spark.createDataFrame([(1, "a")], "id long, label string").write.parquet(str(tmp_path / "a.parquet"))
    with pytest.raises(InvalidRequestError) as caught:
        run(read_source(spark, Source([str(tmp_path / "a.parquet")]), PEOPLE), table, 0)
    assert caught.value.facts["unknown"] == ["label"]  # the name of a column in a schema, not text of a file
    with pytest.raises(InvalidRequestError, match=r"cannot be read.*none\.parquet.*PATH_NOT_FOUND"):
        read_source(spark, Source([str(tmp_path / "none.parquet")]), PEOPLE)
    with pytest.raises(InvalidRequestError, match="format"):
        read_source(spark, Source(["rows"]), PEOPLE)


@pytest.mark.parametrize(
    "files",
    [
        {"passwd.csv": "CANARY:x:0:0\nCANARY:y:1:1\n"},
        {"d/a.csv": "id,name,score\n1,a,1.0\n", "d/b.csv": "CANARY,b,c\n2,b,2.0\n"},
        {"a.csv": "id,name,score\n1,a,1.0,CANARY\nx CANARY,b,2.0\n"},
        {"a.csv": 'id,name,score\n1,a,1.0\n2,"CANARY \\"CANARY\\"",1.0\n'},
        {"passwd.json": "CANARY:x:0:0\n"},
        {"a.json": '{"id": 1, "CANARY": 2}\n'},
        {"a.json": '{"id": "CANARY", "name": 1, "score": {"CANARY": 1}}\n'},
        {"passwd.parquet": "CANARY:x:0:0\nCANARY"},
        {"passwd.lance": "CANARY:x:0:0\n"},
    ],
)
def test_what_is_no_row_of_the_table_is_never_repeated(
    table: BaseTable, spark: SparkSession, tmp_path: Path, files: dict[str, str]
) -> None:
    """T3: whatever text a source has, no error, chained ones included, quotes it."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    first = next(iter(files))
    place, suffix = str(tmp_path / first.partition("/")[0]), Path(first).suffix.removeprefix(".")

    with pytest.raises(MemwalError) as refused:
        Table.open(table.uri).run(IngestRequest(sources=(place,), format=SourceFormat(suffix), batch="b"))

    said = "".join(traceback.format_exception(refused.value)) + repr(refused.value.facts)
    assert "CANARY" not in said
    assert regions(table).region_ids() == []


@pytest.mark.slow
@pytest.mark.req("WRT-88")
def test_a_batch_that_fails_its_suite_is_refused_whole(table: BaseTable, spark: SparkSession, tmp_path: Path) -> None:
    suite = tmp_path / "suite.py"
    suite.write_text(
        "import great_expectations as gx\n"
        "import great_expectations.expectations as gxe\n"
        "suite = gx.ExpectationSuite('people', expectations=[\n"
        "    gxe.ExpectColumnValuesToBeBetween(column='score', max_value=150)])\n"
    )
    check = frame_check([str(suite)])

    with pytest.raises(InvalidRequestError, match="expectations") as caught:
        run(batch_of(spark, "a"), table, 0, check=check)
    good = run(batch_of(spark, "a", 100), table, 1, check=check)

    assert "49 of 200" in caught.value.facts["failed"][0]
    assert len(caught.value.facts["sample_rows"]) == 5
    assert all(float(row["score"]) > 150 and row["id"] for row in caught.value.facts["sample_rows"])
    assert good.rows_written == 100
    assert names(table) == dict.fromkeys(range(100), "a")


def test_command_and_job_write_a_batch_once(table: BaseTable, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "rows.parquet")
    pq.write_table(people(*range(30), name="a"), place)
    request, report = {"sources": [place]}, tmp_path / "report.json"

    assert submit("ingest", uri=table.uri, request=request | {"dry_run": True}, report=str(report)) == 0
    assert json.loads(report.read_text())["outcome"] == "planned"
    assert submit("ingest", uri=table.uri, request=request, report=str(report)) == 0
    told = json.loads(report.read_text())
    assert (told["rows_read"], told["rows_written"], told["rows_rejected"], len(told["regions"])) == (30, 30, 0, 4)
    assert told["batch"] == batch_of_files(Source([place], SourceFormat.PARQUET))
    assert submit("ingest", uri=table.uri, request=request) == 3
    assert submit("ingest", uri=table.uri, request=request, ok_when_nothing=True) == 0
    again = CliRunner().invoke(app, ["ingest", table.uri, place, "--json"])
    assert (again.exit_code, json.loads(again.stdout)["outcome"]) == (3, "nothing_to_do")
    other = CliRunner().invoke(app, ["ingest", table.uri, place, "--batch", "other", "--engine", "spark"])
    assert (other.exit_code, "30 written into 4 regions" in other.stdout) == (0, True), other.output
    assert names(table) == dict.fromkeys(range(30), "a")
    runs = Table.open(table.uri).opened.ledger.runs("ingest")
    assert [run.outcome.value for run in runs] == ["done", *["nothing_to_do"] * 3, "done"]


def test_session_of_the_caller_is_used_and_left_to_the_caller(
    table: BaseTable, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "rows.parquet")
    pq.write_table(people(*range(30), name="a"), place)

    report = Table.open(table.uri).run(IngestRequest(sources=(place,), engine=Engine.SPARK))

    assert report.rows_written == 30
    assert spark.range(3).count() == 3
    assert names(table) == dict.fromkeys(range(30), "a")


@pytest.mark.s3
@pytest.mark.slow
def test_batches_go_into_a_table_in_an_object_store(spark: SparkSession) -> None:
    with s3_server() as server:
        table = make_people_table(server.uri("bucket/people.lance"), buckets=2, storage_options=server.storage_options)
        run(batch_of(spark, "old"), table, 0)
        run(batch_of(spark, "new", 50), table, 1)

        assert run(batch_of(spark, "old"), table, 0).outcome is JobOutcome.NOTHING_TO_DO
        assert names(table) == {number: "new" if number < 50 else "old" for number in range(200)}
