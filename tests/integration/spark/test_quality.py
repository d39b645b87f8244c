"""Quality checks on real tables: a sound one passes, and each kind of damage makes its check fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.errors import CorruptionError, InvalidRequestError, StoreRefusedError, UnavailableError
from memwal_core.format.paths import generation_path
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.quality.checks import before
from memwal_core.quality.model import Check, QualityReport, Result, Stage
from memwal_core.quality.run import Orders, check_quality
from memwal_core.region.spec import RegionField, RegionSpec
from memwal_core.spark.tasks import SparkTasks
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.faulty_proxy import FaultyProxy, faulty_proxy
from testkit.faults.key_filters import forget_keys
from testkit.s3_server import s3_server
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import PEOPLE, make_people_table, people, quality_of
from tests.integration.spark.submitted import submit

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Check_ = Callable[..., QualityReport]

CHECKS = {
    Stage.BEFORE: {
        Check.READABLE, Check.SCHEMA, Check.KEY_NOT_NULL, Check.REGION_EXCLUSIVITY, Check.USER_SUITE,
    },
    Stage.AFTER: {
        Check.KEY_UNIQUE, Check.KEY_NOT_NULL, Check.ROW_ARITHMETIC, Check.MERGED_KEYS_PRESENT,
        Check.DELETED_KEYS_ABSENT, Check.ROWS_STABLE, Check.NO_TOMBSTONE_COLUMN, Check.INDEXED_ANSWER, Check.LSM_VIEW,
    },
}  # fmt: skip
DAMAGED: set[tuple[Stage, Check]] = set()
"""What the tests of this file make fail."""


def damages(stage: Stage, *checks: Check) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which checks a test makes fail; the fixture ``run`` holds it to that."""
    DAMAGED.update((stage, check) for check in checks)

    def marked(test: Callable[..., None]) -> Callable[..., None]:
        test.damages = {(stage, check) for check in checks}
        return test

    return marked


def sharing_of(table: Table, spark: SparkSession) -> Sharing:
    """Divide work between the executors of a session."""
    context = JobContext(table.opened, executors=SparkTasks(spark, table.base.uri))
    sharing = Sharing(context, Engine.SPARK, QualityRequest())
    sharing.choose(Work())
    return sharing


@pytest.fixture
def run(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Check_]:
    """Plan and run a stage of the checks."""
    seen: set[tuple[Stage, Check]] = set()

    def checked(uri: str, stage: Stage, **more: object) -> QualityReport:
        table = Table.open(uri)
        quality = quality_of(table)
        report = check_quality(quality, quality.plan(stage), spark, sharing_of(table, spark), orders=Orders(**more))
        seen.update((stage, result.check) for result in report.failed)
        return report

    yield checked
    assert getattr(request.function, "damages", set()) <= seen


def write(table: BaseTable, *generations: Sequence[int]) -> None:
    with TableWriter.open(table) as writer:
        for ids in generations:
            writer.put(people(*ids, name="new"))
            writer.flush()


def make_waiting_table(uri: str) -> Table:
    """Make a table with two regions and two generations each; keys 0 to 19 are in the base table."""
    table = make_people_table(uri, rows=people(*range(20)), buckets=2)
    write(table, range(10, 30), range(25, 35))
    return Table.open(uri)


def forge(admin: Table, rows: pa.Table) -> tuple[str, int]:
    """Replace the rows of the first region's first generation; return its name in reports."""
    manifest = admin.opened.manifests.load(admin.opened.manifests.region_ids()[0])
    first = manifest.flushed_generations[0]
    lance.write_dataset(
        rows, admin.base.store.uri_of(generation_path(manifest.region_id, first.path)), mode="overwrite"
    )
    return str(manifest.region_id), first.generation


def results(report: QualityReport) -> dict[str, str]:
    return {result.check.value: result.result.value for result in report.results}


def failed(report: QualityReport) -> set[Check]:
    return {result.check for result in report.failed}


def test_sound_generations_pass_and_are_described_in_data_docs(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    suite = tmp_path / "suite.py"
    suite.write_text(
        "import great_expectations as gx\n"
        "import great_expectations.expectations as gxe\n"
        "suite = gx.ExpectationSuite('people', expectations=[gxe.ExpectColumnValuesToNotBeNull(column='name')])\n"
    )

    report = run(admin.base.uri, Stage.BEFORE, suites=[str(suite)], docs=str(tmp_path / "docs"))

    assert report.outcome is JobOutcome.DONE, report.to_dict()
    assert {result.result for result in report.results} == {Result.PASSED}
    assert report.quarantined == ()
    assert (tmp_path / "docs" / "index.html").is_file()
    assert list((tmp_path / "docs" / "validations").rglob("*.html"))


@damages(Stage.BEFORE, Check.REGION_EXCLUSIVITY)
def test_rows_of_another_region_hold_their_region_back_and_no_other(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    region, generation = forge(admin, people(*range(10, 30), name="stray"))

    report = run(admin.base.uri, Stage.BEFORE)

    assert failed(report) == {Check.REGION_EXCLUSIVITY}
    assert [(str(entry.region_id), entry.generation) for entry in report.quarantined] == [(region, generation)]
    assert "rows belong to another region" in report.quarantined[0].reasons[0]
    merged = admin.run(MergeRequest())
    shares = {str(share.region_id): share for share in merged.regions}
    assert merged.outcome is JobOutcome.BLOCKED
    assert shares.pop(region).verdict is Verdict.QUARANTINED
    assert [(share.merged_after, share.verdict) for share in shares.values()] == [(2, Verdict.COMPLETE)]


def test_pylances_bucket_is_checked_by_its_own_formula(tmp_path, run):
    uri = str(tmp_path / "t")
    lance.write_dataset(PEOPLE.empty_table(), uri)
    table = BaseTable.open(uri)
    field = RegionField("f", (table.state().field_ids["id"],), "bucket", parameters={"num_buckets": "2"})
    table.create_mem_wal_index([RegionSpec(1, (field,))])
    write(table, range(40))

    assert run(uri, Stage.BEFORE).outcome is JobOutcome.DONE

    forge(Table.open(uri), people(*range(40)))
    assert failed(run(uri, Stage.BEFORE)) == {Check.REGION_EXCLUSIVITY}


@damages(Stage.BEFORE, Check.KEY_NOT_NULL)
def test_key_without_value_is_held(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    nullable = pa.schema([pa.field("id", pa.int64()), *(PEOPLE.field(name) for name in ("name", "score"))])
    forge(admin, pa.table({"id": [None], "name": ["x"], "score": [1.0]}, schema=nullable))

    report = run(admin.base.uri, Stage.BEFORE)

    assert Check.KEY_NOT_NULL in failed(report)
    assert any(
        "1 of 1 rows have NULL in their key" in reason for entry in report.quarantined for reason in entry.reasons
    )


@damages(Stage.BEFORE, Check.SCHEMA)
def test_other_schema_is_held(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    forge(admin, pa.table({"id": [1], "name": [2], "score": [1.0]}))

    report = run(admin.base.uri, Stage.BEFORE)

    assert failed(report) == {Check.SCHEMA}
    assert "'name'" in report.quarantined[0].reasons[0]


@damages(Stage.BEFORE, Check.READABLE)
def test_lost_generation_is_reported_and_not_held(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    manifest = admin.opened.manifests.load(admin.opened.manifests.region_ids()[0])
    path = generation_path(manifest.region_id, manifest.flushed_generations[0].path)
    shutil.rmtree(Path(admin.base.uri) / path)

    report = run(admin.base.uri, Stage.BEFORE)

    assert failed(report) == {Check.READABLE}
    assert report.quarantined == ()


@pytest.mark.slow
@damages(Stage.BEFORE, Check.USER_SUITE)
def test_users_suite_holds_only_the_generation_that_breaks_it(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    suite = tmp_path / "suite.json"
    expectation = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "id", "max_value": 30, "mostly": 1.0},
        "meta": {},
    }
    suite.write_text(json.dumps({"name": "small ids", "expectations": [expectation], "meta": {}}))

    report = run(admin.base.uri, Stage.BEFORE, suites=[str(suite)])

    assert failed(report) == {Check.USER_SUITE}
    assert {entry.generation for entry in report.quarantined} == {2}
    assert all("user_suite 'small ids'" in reason for entry in report.quarantined for reason in entry.reasons)


@pytest.mark.slow
@damages(Stage.BEFORE, Check.USER_SUITE)
def test_users_suite_sees_instants_nanoseconds_and_decimals(tmp_path, run):
    """An instant in any column ended the audit with an assertion of pyspark; a decimal of 50 digits ended Spark."""
    kinds = {"utc": pa.timestamp("us", "UTC"), "ns": pa.timestamp("ns"), "price": pa.decimal256(20, 2)}
    schema = pa.schema([("id", pa.int64()), *kinds.items(), ("wide", pa.decimal256(50, 2))])
    admin = Table.create(str(tmp_path / "t"), schema, key="id", buckets=1)
    with admin.writer() as writer:
        for number, at in enumerate([-1, None]):
            values = {name: pa.array([at], kind) for name, kind in kinds.items()}
            writer.put(pa.table({"id": [number], **values, "wide": pa.nulls(1, schema.field("wide").type)}, schema))
            writer.flush()
    suite = tmp_path / "suite.json"
    given = [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": name}} for name in kinds]
    suite.write_text(json.dumps({"name": "times", "expectations": given, "meta": {}}))

    report = run(admin.base.uri, Stage.BEFORE, suites=[str(suite)])

    assert [entry.generation for entry in report.quarantined] == [2]
    assert sum("not_be_null" in reason for reason in report.quarantined[0].reasons) == len(kinds)


@pytest.mark.parametrize("stage", list(Stage))
def test_broken_suite_is_refused_also_where_nothing_waits_for_it(tmp_path, run, stage):
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    suite = tmp_path / "suite.json"
    suite.write_text('{"nonsense')

    with pytest.raises(InvalidRequestError, match="no expectation suite"):
        run(table.uri, stage, suites=[str(suite)])


@pytest.mark.slow
def test_released_generation_is_merged_and_not_held_again(tmp_path, run):
    admin = make_waiting_table(str(tmp_path / "t"))
    region, generation = forge(admin, people(2, name="stray").slice(0, 0))
    forge(admin, pa.table({"id": [1], "name": [2], "score": [1.0]}))
    run(admin.base.uri, Stage.BEFORE)

    shown = CliRunner().invoke(app, ["checks", admin.base.uri, "--json"])
    assert shown.exit_code == 5
    assert [entry["generation"] for entry in json.loads(shown.stdout)["quarantined"]] == [generation]
    status = json.loads(CliRunner().invoke(app, ["status", admin.base.uri, "--json"]).stdout)
    assert {each["region_id"]: each["quarantined_generations"] for each in status["regions"]}[region] == [generation]
    ended = CliRunner().invoke(app, ["checks", admin.base.uri, "--release", f"{region}:{generation}"])
    assert f"released: region {region} generation {generation}" in ended.stdout

    assert run(admin.base.uri, Stage.BEFORE).quarantined == ()


def merged_table(uri: str) -> Table:
    admin = make_waiting_table(uri)
    assert admin.run(MergeRequest()).outcome is JobOutcome.DONE
    return admin


@pytest.mark.req("MRG-30")
def test_sound_merge_passes(tmp_path, run):
    uri = str(tmp_path / "t")
    admin = merged_table(uri)

    report = run(uri, Stage.AFTER)

    assert report.outcome is JobOutcome.DONE, report.to_dict()
    assert results(report) == {
        "key_unique": "passed",
        "key_not_null": "passed",
        "no_tombstone_column": "passed",
        "row_arithmetic": "passed",
        "merged_keys_present": "passed",
        "deleted_keys_absent": "passed",
        "lsm_view": "passed",
    }
    assert quality_of(admin).newest(Stage.AFTER) == report.to_dict()


@pytest.mark.slow
@pytest.mark.req("MRG-30")
@damages(Stage.AFTER, Check.KEY_UNIQUE)
def test_key_that_occurs_twice_fails(tmp_path, run):
    uri = str(tmp_path / "t")
    merged_table(uri)
    lance.write_dataset(people(1, 1), uri, mode="append")

    report = run(uri, Stage.AFTER)

    assert failed(report) == {Check.KEY_UNIQUE, Check.ROWS_STABLE}
    [unique] = [each for each in report.results if each.check is Check.KEY_UNIQUE]
    assert (unique.count, "{'id': 1, 'copies': 3}" in unique.evidence) == (2, True)


@damages(Stage.AFTER, Check.KEY_NOT_NULL)
def test_base_row_without_a_key_fails(tmp_path, run, spark):
    uri = str(tmp_path / "t")
    dataset = make_people_table(uri, rows=people(*range(20)), buckets=2).dataset()
    [sound] = dataset.get_fragments()[0].metadata.files
    nullable = pa.schema([pa.field("id", pa.int64()), *(PEOPLE.field(name) for name in ("name", "score"))])
    with LanceFileWriter(f"{uri}/data/forged.lance", nullable, version=dataset.data_storage_version) as forged:
        forged.write_batch(pa.table({"id": [None], "name": ["x"], "score": [1.0]}, schema=nullable))
    # Lance refuses such a row on every way in, so the file is brought in by a commit.
    file = DataFile(
        "forged.lance", sound.fields, sound.column_indices, sound.file_major_version, sound.file_minor_version
    )
    fragment = FragmentMetadata(id=0, files=[file], physical_rows=1)
    lance.LanceDataset.commit(uri, lance.LanceOperation.Append([fragment]), read_version=dataset.version)

    report = run(uri, Stage.AFTER)

    assert Check.KEY_NOT_NULL in failed(report)
    assert report.outcome is JobOutcome.BLOCKED
    [complete] = [each for each in report.results if each.check is Check.KEY_NOT_NULL]
    assert "the keys of the base table cannot be read" in complete.evidence
    for executors in (None, SparkTasks(spark, uri)):
        engine = Engine.LOCAL if executors is None else Engine.SPARK
        with pytest.raises(CorruptionError, match="the keys of the base table cannot be read"):
            Table.open(uri).run(VerifyRequest(engine=engine), executors=executors)


@pytest.mark.slow
@damages(Stage.AFTER, Check.ROWS_STABLE)
def test_rows_that_vanish_after_the_merge_fail(tmp_path, run):
    uri = str(tmp_path / "t")
    merged_table(uri)
    lance.dataset(uri).delete("id < 3")

    assert failed(run(uri, Stage.AFTER)) == {Check.ROWS_STABLE}


@pytest.mark.req("MRG-30")
@damages(Stage.AFTER, Check.ROW_ARITHMETIC, Check.MERGED_KEYS_PRESENT)
def test_merge_that_loses_rows_fails_the_arithmetic(tmp_path, run):
    uri = str(tmp_path / "t")
    admin = make_waiting_table(uri)
    marks = dict.fromkeys(admin.opened.manifests.region_ids(), 2)
    merge_natively(admin.base, people(*range(10, 34), name="new"), marks)  # key 34 is forgotten

    report = run(uri, Stage.AFTER)

    assert failed(report) == {Check.ROW_ARITHMETIC, Check.MERGED_KEYS_PRESENT}


@pytest.mark.slow
@damages(Stage.AFTER, Check.DELETED_KEYS_ABSENT)
def test_merge_that_forgets_a_delete_fails(tmp_path, run):
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1, 2, 3), buckets=1)
    with TableWriter.open(table) as writer:
        writer.delete(pa.table({"id": [2]}, schema=pa.schema([PEOPLE.field("id")])))
        writer.flush()
    admin = Table.open(uri)
    merge_natively(table, PEOPLE.empty_table(), dict.fromkeys(admin.opened.manifests.region_ids(), 1))

    report = run(uri, Stage.AFTER)

    assert failed(report) == {Check.ROW_ARITHMETIC, Check.DELETED_KEYS_ABSENT}


@pytest.mark.slow
@damages(Stage.AFTER, Check.NO_TOMBSTONE_COLUMN)
def test_tombstone_column_in_the_base_table_fails(tmp_path, run):
    uri = str(tmp_path / "t")
    merged_table(uri)
    lance.dataset(uri).add_columns(pa.field("_tombstone", pa.bool_()))

    assert failed(run(uri, Stage.AFTER)) == {Check.NO_TOMBSTONE_COLUMN}


@damages(Stage.AFTER, Check.LSM_VIEW)
def test_rows_that_readers_do_not_see_fail_the_view(tmp_path, run):
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(*range(300)), buckets=2)
    write(table, range(300), range(290, 300))
    admin = Table.open(uri)
    for region_id in admin.opened.manifests.region_ids():
        first = admin.opened.manifests.load(region_id).flushed_generations[0]
        assert forget_keys(uri, Path(uri) / generation_path(region_id, first.path), "id") > 0

    report = run(uri, Stage.AFTER)

    assert failed(report) == {Check.LSM_VIEW}
    assert "4 flushed MemTables" in report.failed[0].subject
    assert "'name': 'p" in report.failed[0].evidence  # old rows instead of new ones
    assert report.failed[0].count > 0


def test_every_check_is_made_to_fail_by_a_test_of_this_file():
    assert {(stage, check) for stage, checks in CHECKS.items() for check in checks} == DAMAGED
    assert set().union(*CHECKS.values()) == set(Check)


@pytest.mark.slow
def test_indexes_that_answer_like_a_scan_pass(tmp_path, run):
    uri = str(tmp_path / "t")
    make_articles_table(uri, rows=600)

    report = run(uri, Stage.AFTER)

    answers = {result.subject.split(",")[0]: result.result for result in report.results if "index" in result.subject}
    assert answers == {
        "index id_idx": Result.PASSED,
        "index title_idx": Result.SKIPPED,
        "index topic_idx": Result.PASSED,
        "index vec_idx": Result.PASSED,
    }


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [("BTREE", "a file cannot be decoded"), ("BITMAP", "5 of 5"), ("IVF_FLAT", "a file cannot be decoded")],
)
@damages(Stage.AFTER, Check.INDEXED_ANSWER)
def test_index_with_the_content_of_another_fails(tmp_path, run, kind, evidence):
    uri = str(tmp_path / "t")
    make_articles_table(uri, rows=600, kinds=[kind])
    [index] = (Path(uri) / "_indices").iterdir()
    shutil.rmtree(index)
    shutil.copytree(foreign_index(tmp_path, kind), index)

    report = run(uri, Stage.AFTER)

    # Look-ups of so many keys scan the key column, so that readers get their rows in spite of a wrong index on it.
    assert failed(report) == {Check.INDEXED_ANSWER}
    assert evidence in report.failed[0].evidence


def foreign_index(tmp_path: Path, kind: str) -> Path:
    """Build the index of rows in the opposite order and with other vectors."""
    uri = str(tmp_path / "foreign")
    made = make_articles_table(uri, rows=1, kinds=[])
    rows = articles(0, 600)
    turned = rows.take(pa.array(np.arange(600)[::-1])).set_column(
        3, rows.schema.field("vec"), articles(5000, 600).column("vec")
    )
    dataset = lance.write_dataset(turned, made.uri, mode="overwrite")
    if kind == "IVF_FLAT":
        dataset.create_index("vec", kind, name="vec_idx", num_partitions=4)
    else:
        column = {"BTREE": "id", "BITMAP": "topic"}[kind]
        dataset.create_scalar_index(column, kind, name=f"{column}_idx")
    [index] = [each for each in (Path(uri) / "_indices").iterdir() if any(each.iterdir())][-1:]
    return index


def test_job_writes_its_report_and_ends_with_the_outcome_code(tmp_path, spark):
    admin = make_waiting_table(str(tmp_path / "t"))
    target = tmp_path / "report.json"

    def run_stage(stage: str, holder: str = "", **request: object) -> int:
        values = {"stage": stage, **request}
        return submit("quality", uri=admin.base.uri, request=values, holder=holder, report=str(target))

    assert run_stage("before", dry_run=True) == 0
    assert len(json.loads(target.read_text())["plan"]["audits"]) == 4
    assert run_stage("after", since=77) == 2
    forge(admin, people(*range(10, 30)))
    assert run_stage("before", holder="memwal_quality/a run") == 5
    assert json.loads(target.read_text())["outcome"] == "blocked"

    runs = admin.opened.ledger.runs("quality")
    assert [(str(run.key), run.outcome.value, run.error) for run in runs] == [
        ("quality/after", "refused", "InvalidRequestError"),
        ("quality/before", "blocked", ""),
    ]
    last = runs[-1]
    assert (last.holder, last.verdict) == ("memwal_quality/a run", "failed: region_exclusivity")
    assert (last.facts["failed"], last.facts["quarantined"], last.facts["stage"]) == (
        ["region_exclusivity"],
        1,
        "before",
    )


@pytest.mark.s3
@pytest.mark.slow
def test_table_and_data_docs_on_s3(spark):
    with s3_server() as server:
        table = make_people_table(server.uri("bucket/t"), buckets=1, storage_options=server.storage_options)
        write(table, range(5))
        admin = Table.open(table.uri, storage_options=server.storage_options)
        quality, sharing = quality_of(admin), sharing_of(admin, spark)
        docs = server.uri("bucket/docs")

        report = check_quality(quality, quality.plan(Stage.BEFORE), spark, sharing, orders=Orders(docs=docs))

        assert report.outcome is JobOutcome.DONE, report.to_dict()
        pages = open_store(server.uri("bucket/docs"), storage_options=server.storage_options)
        assert pages.head("index.html") is not None
        assert quality.newest(Stage.BEFORE) == report.to_dict()
        admin.run(MergeRequest())
        after = check_quality(quality, quality.plan(Stage.AFTER), spark, sharing)
        assert after.outcome is JobOutcome.DONE, after.to_dict()


@contextmanager
def waiting_beyond_a_proxy() -> Iterator[tuple[Table, FaultyProxy]]:
    """Make a table with one waiting generation on S3, whose requests pass a proxy."""
    with s3_server() as s3, faulty_proxy(s3.endpoint) as proxy:
        table = make_people_table(s3.uri("bucket/t"), rows=people(1), buckets=1, storage_options=s3.storage_options)
        write(table, [2])
        options = {**s3.storage_options, "aws_endpoint": proxy.endpoint, "client_max_retries": "0"}
        yield Table.open(table.uri, storage_options=options), proxy


def test_store_that_refuses_an_executor_is_our_error(spark):
    """It was a traceback of Spark's, or a flushed MemTable that is not readable."""
    with waiting_beyond_a_proxy() as (admin, proxy):
        quality = quality_of(admin)
        plan = quality.plan(Stage.BEFORE)
        proxy.answer("GET", 403, times=1000, path="_gen_1/")
        with pytest.raises(StoreRefusedError):
            check_quality(quality, plan, spark, sharing_of(admin, spark))


@pytest.mark.parametrize("status", [403, 503])
def test_store_that_denies_rows_to_a_suite_holds_no_generation_back(tmp_path, spark, monkeypatch, status):
    """Great Expectations takes what it cannot read for a failed expectation, for which generations are held back."""
    suite = tmp_path / "suite.json"
    kinds = [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name"}}]
    suite.write_text(json.dumps({"name": "names", "expectations": kinds, "meta": {}}))
    with waiting_beyond_a_proxy() as (admin, proxy):
        quality = quality_of(admin)
        whole = before.generation_frame

        def denied(*arguments: Any) -> DataFrame:
            proxy.answer("GET", status, times=1000, path="_gen_1/")
            return whole(*arguments)

        monkeypatch.setattr(before, "generation_frame", denied)
        plan, orders = quality.plan(Stage.BEFORE), Orders(suites=[str(suite)])
        with pytest.raises(UnavailableError, match="could not be read to check them"):
            check_quality(quality, plan, spark, sharing_of(admin, spark), orders=orders)
        assert not quality.quarantine.by_region()


def test_merged_table_has_nothing_to_audit(tmp_path, run):
    admin = merged_table(str(tmp_path / "t"))

    assert run(admin.base.uri, Stage.BEFORE).outcome is JobOutcome.NOTHING_TO_DO
    assert admin.run(MergeRequest(dry_run=True)).outcome is JobOutcome.NOTHING_TO_DO
