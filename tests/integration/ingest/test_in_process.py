"""Small batches are written by the process that was asked, without Spark, with the guarantees of larger ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.format.paths import BATCHES_DIRECTORY
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.arrow_rows import ArrowRows
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import BatchRequest
from memwal_core.ingest.records import BatchRecords
from memwal_core.ingest.report import IngestReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine
from memwal_core.reader.merged import MergedReader
from memwal_core.region import ManifestStore
from memwal_core.settings import IngestSettings, Settings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter, Takeover
from testkit.processes.command import run_command
from testkit.processes.start import start_process
from testkit.tables.people import make_people_table, people

BUCKETS = 4
NOT_A_NUMBER = float("nan")
OTHER_KEYS = {"another": ((1, 2, 3), (1, 2, 4)), "twice": ((1, 1, 2), (3, 3, 2))}


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"), buckets=BUCKETS)


def names(table: BaseTable) -> dict[int, str]:
    rows = MergedReader(table).to_arrow()
    assert rows.num_rows == len(set(rows.column("id").to_pylist()))
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def ingest(table: BaseTable, *sources: Path, **options: object) -> IngestReport:
    request = IngestRequest(sources=tuple(map(str, sources)), **options)
    report = Table.open(table.uri, settings=table.settings).run(request)
    assert isinstance(report, IngestReport)
    return report


def parquet(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path)
    return path


def test_a_command_needs_neither_spark_nor_java(table: BaseTable, tmp_path: Path) -> None:
    source = parquet(tmp_path / "rows.parquet", people(*range(50), name="a"))
    without = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        "from memwal_core.cli import main; main()"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", without, "ingest", table.uri, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    done = run(str(source), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows_written"], len(told["regions"]), told["where"]["engine"]) == (50, BUCKETS, "local")
    assert names(table) == dict.fromkeys(range(50), "a")
    spark = run(str(source), "--batch", "again", "--engine", "spark")
    assert (spark.returncode, 'pip install "memwal-core[spark]"' in spark.stderr) == (2, True), spark.stderr


def test_a_batch_is_written_once_whatever_came_after_it(table: BaseTable, tmp_path: Path) -> None:
    source = parquet(tmp_path / "rows.parquet", people(*range(20), name="old"))

    assert ingest(table, source, dry_run=True).outcome is JobOutcome.PLANNED
    assert ManifestStore(table.store, table.ids).region_ids() == []
    first = ingest(table, source)
    newer = ingest(table, parquet(tmp_path / "more.parquet", people(*range(5), name="new")))
    again = ingest(table, source)

    assert (first.rows_written, newer.rows_written, again.rows_written) == (20, 5, 0)
    assert again.outcome is JobOutcome.NOTHING_TO_DO
    assert names(table) == {number: "new" if number < 5 else "old" for number in range(20)}


@pytest.mark.parametrize(("keys", "others"), OTHER_KEYS.values(), ids=OTHER_KEYS)
def test_a_batch_that_was_begun_goes_on_with_the_same_keys_only(
    tmp_path: Path, keys: tuple[int, ...], others: tuple[int, ...]
) -> None:
    """As many rows in the same region, and other keys: only their digest tells."""
    one_region = make_people_table(str(tmp_path / "one.lance"), buckets=1)
    records = BatchRecords(one_region.store, one_region.clock)
    first = parquet(tmp_path / "first.parquet", people(*keys))
    second = parquet(tmp_path / "second.parquet", people(*others))
    planned = ingest(one_region, first, batch="b", dry_run=True)
    (share,) = planned.regions
    admission = RowAdmission.of(one_region)
    counted = ArrowRows(people(*keys), admission, one_region, BatchRequest(BatchId("ingest", "b"))).count()
    records.begin(BatchId("ingest", "b"), {value: each.rows for value, each in counted.regions.items()})

    with pytest.raises(InvalidRequestError, match="began this batch with other rows"):
        ingest(one_region, second, batch="b")
    assert ingest(one_region, first, batch="b").rows_written == share.rows == 3


def test_the_same_batch_by_many_at_once_leaves_the_rows_of_one(table: BaseTable, tmp_path: Path) -> None:
    source = parquet(tmp_path / "rows.parquet", people(*range(500), name="a"))

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: ingest(table, source), range(4)))

    assert {report.outcome for report in reports} <= {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
    assert names(table) == dict.fromkeys(range(500), "a")


def test_several_places_and_a_pattern_are_one_batch_in_their_order(table: BaseTable, tmp_path: Path) -> None:
    directory = tmp_path / "landing"
    (directory / "deeper").mkdir(parents=True)
    parquet(directory / "b.parquet", people(1, 2, name="b"))
    parquet(directory / "a.parquet", people(1, 3, name="a"))
    parquet(directory / "deeper" / "c.parquet", people(4, name="c").drop_columns(["score"]))
    (directory / "_SUCCESS").touch()
    lance.write_dataset(people(5, name="lance"), str(tmp_path / "rows.lance"))

    ingest(table, directory, format=SourceFormat.PARQUET, batch="directory")
    ingest(table, tmp_path / "rows.lance", batch="lance")
    parquet(tmp_path / "1.parquet", people(6, name="first"))
    parquet(tmp_path / "2.parquet", people(6, name="second"))
    ingest(table, tmp_path / "[12].parquet", format=SourceFormat.PARQUET, batch="pattern")
    again = ingest(table, directory / "*", format=SourceFormat.PARQUET, batch="all but what is hidden")

    assert again.rows_written == 5
    assert names(table) == {1: "b", 2: "b", 3: "a", 4: "c", 5: "lance", 6: "second"}


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_table_is_no_source_while_rows_that_were_put_into_it_wait(
    table: BaseTable, tmp_path: Path, is_flushed: bool
) -> None:
    """Its base table lacks them, so that the batch counted as done without them."""
    source = Table.create(str(tmp_path / "source.lance"), table.state().schema, key="id", buckets=2)
    with source.writer() as writer:
        writer.put(people(1, 2, name="put"))
        if is_flushed:
            writer.flush()

    with pytest.raises(InvalidRequestError, match="wait for their merge") as refused:
        ingest(table, source.uri, batch="b")

    assert refused.value.remedy.startswith(f"run `memwal maintain {source.uri}`")
    for request in (FlushRequest(), MergeRequest()):
        source.run(request)
    ingest(table, source.uri, batch="b")
    assert names(table) == {1: "put", 2: "put"}


def test_the_newest_row_of_a_key_wins_and_deletes_delete(table: BaseTable, tmp_path: Path) -> None:
    ingest(table, parquet(tmp_path / "old.parquet", people(*range(10), name="old")))
    rows = [(1, "c", 3.0, False), (1, "d", NOT_A_NUMBER, False), (1, "b", None, False), (2, "x", 1.0, True)]
    rows += [(3, "x", 1.0, True), (3, "back", 2.0, False)]
    columns = dict(zip(("id", "name", "at", "gone"), map(list, zip(*rows, strict=True)), strict=True))
    source = parquet(tmp_path / "new.parquet", pa.table({**columns, "score": [0.5] * len(rows)}))

    report = ingest(table, source, order_by="at", delete_column="gone")

    assert (report.rows_written, sum(region.deletes for region in report.regions)) == (6, 2)
    left = dict.fromkeys(range(10), "old") | {1: "d", 3: "back"}
    assert names(table) == {number: name for number, name in left.items() if number != 2}


@pytest.mark.parametrize(
    "order",
    [
        pa.array([True, False]),
        pa.array(["b", "a"]).dictionary_encode(),
        pa.array(["b", "a"], pa.string_view()),
        pa.array([b"b", b"a"], pa.large_binary()),
        pa.array([2, 1], pa.timestamp("ns", "UTC")),
        pa.array([2, 1], pa.date32()),
        pa.array([2, None], pa.decimal128(9, 2)),
        pa.array([2.0, 1.0], pa.float16()),
    ],
    ids=lambda order: str(order.type),
)
def test_rows_are_ordered_by_columns_of_many_types(table: BaseTable, tmp_path: Path, order: pa.Array) -> None:
    rows = pa.table({"id": [1, 1], "name": ["new", "old"], "score": [0.0, 0.0], "at": order})

    lance.write_dataset(rows, str(tmp_path / "rows.lance"), data_storage_version="2.2")
    ingest(table, tmp_path / "rows.lance", order_by="at", batch="b")

    assert names(table) == {1: "new"}


@pytest.mark.parametrize("name", ["__order", "__sequence", "__nan", "__place"])
def test_columns_of_any_name_are_ingested_and_order_rows(tmp_path: Path, name: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(name, pa.float64())])
    table = Table.create(str(tmp_path / "named.lance"), schema, key="id").base
    source = parquet(tmp_path / "rows.parquet", pa.table({"id": [1, 1], name: [2.0, 1.0]}))

    ingest(table, source, batch="last")
    assert MergedReader(table).to_arrow().column(name).to_pylist() == [1.0]
    ingest(table, source, batch="newest", order_by=name)
    assert MergedReader(table).to_arrow().column(name).to_pylist() == [2.0]


def test_a_key_of_any_name_is_ingested(tmp_path: Path) -> None:
    rows = pa.table({"__place": [1, 2], "name": ["a", "b"]})
    table = Table.create(str(tmp_path / "named.lance"), rows.schema, key="__place", buckets=4).base

    assert ingest(table, parquet(tmp_path / "rows.parquet", rows), batch="b").rows_written == 2
    assert MergedReader(table).to_arrow().sort_by("__place").to_pylist() == rows.to_pylist()


def test_a_column_without_an_order_is_refused(table: BaseTable, tmp_path: Path) -> None:
    rows = people(1, 1).append_column("at", pa.array([[1], [2]]))
    with pytest.raises(InvalidRequestError, match="cannot be ordered by a column of this type"):
        ingest(table, parquet(tmp_path / "rows.parquet", rows), order_by="at")


def test_one_bad_row_refuses_the_whole_batch(table: BaseTable, tmp_path: Path) -> None:
    rows = people(1, 2).set_column(0, "id", pa.array([1, None]))
    with pytest.raises(InvalidRequestError, match="nothing was written") as refused:
        ingest(table, parquet(tmp_path / "rows.parquet", rows))
    assert refused.value.facts["rejected_rows"] == 1
    assert ManifestStore(table.store, table.ids).region_ids() == []

    more = people(1).append_column("other", pa.array([1]))
    with pytest.raises(InvalidRequestError, match="columns of the table"):
        ingest(table, parquet(tmp_path / "more.parquet", more))
    with pytest.raises(InvalidRequestError, match="column to order rows by"):
        ingest(table, parquet(tmp_path / "ordered.parquet", people(1)), order_by="at")
    two = [parquet(tmp_path / "1.parquet", people(1)), parquet(tmp_path / "2.parquet", rows.select(["name", "name"]))]
    with pytest.raises(InvalidRequestError, match=r"column|source"):
        ingest(table, *two)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda values: values,
        lambda values: pa.array([values.to_pylist()], pa.list_(values.type)),
        lambda values: pa.StructArray.from_arrays([values], names=["in"]),
    ],
    ids=["plain", "in lists", "in structs"],
)
def test_decimals_beside_floats_are_refused_and_not_rounded(
    tmp_path: Path, wrap: Callable[[pa.Array], pa.Array]
) -> None:
    """Arrow makes one column of both files: 12345678901234567.89 was written as 1.2345678901234568e+16."""
    floats, decimals = pa.array([1.5]), pa.array(["12345678901234567.89"]).cast(pa.decimal128(20, 2))
    first, second = (pa.table({"id": [key], "v": wrap(v)}) for key, v in ((1, floats), (2, decimals)))
    table = Table.create(str(tmp_path / "floats.lance"), first.schema, key="id").base
    files = [parquet(tmp_path / f"{n}.parquet", rows) for n, rows in enumerate((first, second))]

    with pytest.raises(InvalidRequestError, match="types that do not go together"):
        ingest(table, *files, batch="b")
    assert ingest(table, files[0], batch="b").rows_written == 1


def test_columns_of_one_name_are_refused_as_such(table: BaseTable, tmp_path: Path) -> None:
    """They were said to have types that do not go together."""
    rows = people(1)
    twice = parquet(tmp_path / "rows.parquet", rows.append_column("name", rows.column("name")))

    with pytest.raises(InvalidRequestError, match="columns of one name") as caught:
        ingest(table, twice, batch="b")
    assert caught.value.facts["columns"] == ["name"]


def test_a_link_to_itself_is_no_source(table: BaseTable, tmp_path: Path) -> None:
    (tmp_path / "loop.parquet").symlink_to(tmp_path / "loop.parquet")

    with pytest.raises(InvalidRequestError, match="there is no file at a place"):
        ingest(table, tmp_path / "loop.parquet", batch="b")


def test_a_batch_of_too_many_texts_for_a_dictionary_is_refused_and_not_recorded(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.dictionary(pa.int8(), pa.string()))])
    table = Table.create(str(tmp_path / "texts.lance"), schema, key="id")
    rows = pa.table({"id": list(range(300)), "text": [f"text {number}" for number in range(300)]})

    with pytest.raises(InvalidRequestError, match="many values of these columns"):
        ingest(table.base, parquet(tmp_path / "rows.parquet", rows), batch="b")

    store = table.base.store
    assert not list(store.list_objects(BATCHES_DIRECTORY))


def test_suites_are_asked_before_anything_is_written(table: BaseTable, tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(
        json.dumps(
            {
                "name": "scores",
                "expectations": [
                    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "score", "max_value": 9}}
                ],
            }
        )
    )
    low, high = (parquet(tmp_path / f"{n}.parquet", people(n)) for n in (9, 10))

    with pytest.raises(InvalidRequestError, match="expectations"):
        ingest(table, high, suites=(str(suite),))
    assert ingest(table, low, suites=(str(suite),)).rows_written == 1
    assert names(table) == {9: "p9"}


def test_a_live_writer_of_others_is_left_alone_unless_it_is_to_be_stopped(table: BaseTable, tmp_path: Path) -> None:
    ingest(table, parquet(tmp_path / "old.parquet", people(*range(20), name="old")))
    manifests = ManifestStore(table.store, table.ids)
    # The one that is written last: an error keeps writes from beginning.
    last = max(manifests.load_many(manifests.region_ids()), key=lambda each: each.region_field_values["id_bucket"])
    other = RegionWriter.open(table, last.region_id)
    other.put(people(10**6, name="other"))
    source = parquet(tmp_path / "new.parquet", people(*range(20), name="new"))

    with pytest.raises(ConflictError):
        ingest(table, source)
    report = ingest(table, source, takeover=Takeover.FENCE)

    assert report.outcome is JobOutcome.DONE
    assert 0 < report.rows_written < 20
    assert names(table) == {**dict.fromkeys(range(20), "new"), 10**6: "other"}


def _divided(directory: Path) -> Path:
    (directory / "day=1").mkdir(parents=True)
    parquet(directory / "day=1" / "rows.parquet", people(1))
    return directory


def _text(directory: Path) -> Path:
    directory.mkdir()
    (directory / "rows.csv").write_text("id,name,score\n1,a,1.0\n")
    return directory / "rows.csv"


def _one_of_two(directory: Path, pattern: str) -> Path:
    directory.mkdir()
    for name in "ab":
        parquet(directory / f"{name}.parquet", people(1, name=name))
    return directory / pattern


def _instants(directory: Path) -> Path:
    directory.mkdir()
    times = pa.array([[{"at": 0}]], pa.list_(pa.struct([("at", pa.timestamp("us"))])))
    rows = people(1).append_column("times", times)
    pq.write_table(rows, directory / "rows.parquet", use_deprecated_int96_timestamps=True)
    return directory / "rows.parquet"


@pytest.mark.parametrize(
    ("make", "options", "reason"),
    [
        (lambda directory: _divided(directory), {"format": SourceFormat.PARQUET}, "divided by the values of a column"),
        (lambda directory: _text(directory), {}, "Spark reads csv"),
        (lambda directory: _instants(directory), {}, "INT96"),
        # Python takes this one for the other file, and the next for a name.
        (lambda directory: _one_of_two(directory, "[^a].parquet"), {}, "which Hadoop reads its own way"),
        (lambda directory: _one_of_two(directory, "{b,c}.parquet"), {}, "which Hadoop reads its own way"),
        (lambda directory: Path("people"), {"format": SourceFormat.TABLE}, "Spark reads table"),
        (lambda directory: Path("x.parquet"), {"options": {"mergeSchema": "true"}}, "options of Spark's reader"),
    ],
)
def test_what_this_process_does_not_read_is_told_and_left_to_spark(
    table: BaseTable, tmp_path: Path, make: Callable[[Path], Path], options: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match="cannot write the batch") as refused:
        ingest(table, make(tmp_path / "source"), batch="b", engine=Engine.LOCAL, **options)
    assert reason in str(refused.value.facts["reason"])


@pytest.mark.parametrize("rows", [people(*range(2000)), people(*[7] * 2000, name="a" * 40)])
def test_a_batch_above_the_bound_is_left_to_spark(tmp_path: Path, rows: pa.Table) -> None:
    """Files above it are not opened; those that turn out larger once they are read are let go."""
    source = parquet(tmp_path / "rows.parquet", rows)
    small, large = (Settings(ingest=IngestSettings(in_process_bytes=size)) for size in (20_000, 1_000_000))
    made = make_people_table(str(tmp_path / "people.lance"), settings=small)

    with pytest.raises(InvalidRequestError, match=r"ingest\.in_process_bytes"):
        ingest(made, source, engine=Engine.LOCAL)
    report = Table.open(made.uri, settings=large).run(IngestRequest(sources=(str(source),)))

    assert isinstance(report, IngestReport)
    assert (report.rows_written, str(report.place).startswith("in this process: ")) == (2000, True)


def test_paths_are_of_hadoop_where_it_is_configured(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parquet(tmp_path / "rows.parquet", people(1))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    with pytest.raises(InvalidRequestError, match="cannot write the batch") as refused:
        ingest(table, source, batch="b", engine=Engine.LOCAL)
    assert "HADOOP_CONF_DIR" in str(refused.value.facts["reason"])
    request = IngestRequest(sources=(f"file://{source}",), batch="b", engine=Engine.LOCAL)
    assert Table.open(table.uri).run(request).outcome is JobOutcome.DONE


def test_nothing_at_a_place_is_said(table: BaseTable, tmp_path: Path) -> None:
    ended = run_command(["ingest", table.uri, str(tmp_path / "*.parquet"), "--batch", "b"], {})
    assert (ended.code, "there is no file at a place of the source" in ended.stderr) == (2, True), ended.stderr


def _run(uri: str, source: str, connection: object) -> None:
    slowly = Settings(ingest=IngestSettings(put_bytes=100))
    Table.open(uri, settings=slowly).run(IngestRequest(sources=(source,), batch="b", takeover=Takeover.FENCE))


@pytest.mark.parametrize("entries", [1, 20, 60])
def test_a_process_that_is_killed_leaves_a_batch_that_the_next_one_completes(
    table: BaseTable, tmp_path: Path, entries: int
) -> None:
    rows = people(*range(1000), name="a")
    source = parquet(tmp_path / "rows.parquet", rows)
    process, connection = start_process(_run, table.uri, str(source))
    while sum(1 for _ in Path(table.uri, "_mem_wal").glob("*/wal/*.lance")) < entries and process.is_alive():
        pass
    process.kill()
    process.join()
    connection.close()
    assert process.exitcode != 0
    with pytest.raises(InvalidRequestError, match="began this batch with other rows"):
        ingest(table, parquet(tmp_path / "other.parquet", people(*range(999))), batch="b")

    report = ingest(table, source, batch="b")

    assert report.outcome is JobOutcome.DONE
    assert names(table) == dict.fromkeys(range(1000), "a")
