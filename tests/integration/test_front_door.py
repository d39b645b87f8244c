"""The front door: one object to create or open a table, write it, read one's own writes, run jobs and examine it."""

from __future__ import annotations

import copy
import pickle
import shutil
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_core
from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.errors import ConflictError, CorruptionError, InvalidRequestError, MemwalError, ObjectNotFoundError
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.reader import Consistency
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, WriterSettings

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
NOT_DURABLE = Settings(writer=WriterSettings(durable_write=False, background_flush=False))


def rows(*ids: int, name: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "name": [name] * len(ids)}, schema=SCHEMA)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def tenants(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32())


def seen(table: memwal_core.Table, **how: Any) -> dict[int, str]:
    found = table.to_arrow(**how).to_pydict()
    assert len(set(found["id"])) == len(found["id"])
    return dict(zip(found["id"], found["name"], strict=True))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "people.lance")


@pytest.fixture
def table(uri: str) -> memwal_core.Table:
    return memwal_core.create(uri, SCHEMA, key="id", buckets=2)


def test_created_table_is_empty_has_its_key_and_is_opened_again(uri: str) -> None:
    created = memwal_core.create(uri, SCHEMA, key="id", buckets=3)
    opened = memwal_core.open(uri)

    assert (opened.uri, created.count(), opened.count()) == (uri, 0, 0)
    state = opened.base.state()
    assert state.primary_key.columns == ("id",)
    assert not state.schema.field("id").nullable
    assert state.schema.field("name").nullable
    [spec] = state.require_details().region_specs
    assert spec.fields[0].parameters["num_buckets"] == "3"
    assert opened.status().regions == ()


def test_key_of_several_columns_keeps_its_order_and_tells_rows_apart(uri: str) -> None:
    schema = pa.schema([("value", pa.float64()), ("day", pa.string()), ("tenant", pa.int32())])
    table = memwal_core.create(uri, schema, key=["tenant", "day"], buckets=2)
    with table.writer() as writer:
        writer.put(pa.table({"tenant": tenants(1, 1, 2), "day": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]}))
        writer.put(pa.table({"tenant": tenants(1), "day": ["b"], "value": [20.0]}))
        writer.delete(pa.table({"tenant": tenants(2), "day": ["a"]}))
        before = sorted(table.to_arrow().to_pylist(), key=str)
        writer.flush()
    table.run(memwal_core.MergeRequest())
    one = table.lookup(pa.table({"day": ["b"], "tenant": tenants(1)}))

    assert table.base.state().primary_key.columns == ("tenant", "day")
    assert before == sorted(lance.dataset(uri).to_table().to_pylist(), key=str)
    assert {(row["tenant"], row["day"]): row["value"] for row in before} == {(1, "a"): 1.0, (1, "b"): 20.0}
    assert one.column("value").to_pylist() == [20.0]


def test_own_writes_and_deletes_are_read_before_any_flush(table: memwal_core.Table) -> None:
    with table.writer() as writer:
        assert seen(table) == {}
        writer.put(rows(1, 2, 3, 4, name="first"))
        assert seen(table) == dict.fromkeys([1, 2, 3, 4], "first")
        writer.put(rows(2, name="second"))
        writer.delete(keys(3))
        assert seen(table) == {1: "first", 2: "second", 4: "first"}
        assert table.count("name = 'first'") == 2
        assert table.lookup(keys(2, 3)).column("name").to_pylist() == ["second"]
        writer.flush()
        writer.delete(keys(1))  # Of a flushed row, by a tombstone that is in memory only.
        assert seen(table) == {2: "second", 4: "first"}
        table.run(memwal_core.MergeRequest())
        assert seen(table) == {2: "second", 4: "first"}
        writer.put(rows(1, name="back"))
        assert table.to_arrow(ScanRequest(filter_sql="id < 3")).num_rows == 2


def test_rows_that_are_not_durable_yet_are_read_too(uri: str) -> None:
    memwal_core.create(uri, SCHEMA, key="id")
    table = memwal_core.open(uri, settings=NOT_DURABLE)
    with table.writer() as writer:
        writer.put(rows(1, 2))
        writer.delete(keys(2))

        assert seen(table) == {1: "x"}
        assert seen(memwal_core.open(uri), consistency=Consistency.DURABLE) == {}


@pytest.mark.parametrize("settings", [Settings(), NOT_DURABLE], ids=["durable", "not-durable"])
def test_own_writes_stay_visible_after_the_writer_was_closed_without_a_flush(uri: str, settings: Settings) -> None:
    memwal_core.create(uri, SCHEMA, key="id", buckets=2)
    table = memwal_core.open(uri, settings=settings)
    with table.writer() as writer:
        writer.put(rows(1, 2, 3))
        writer.flush()
        writer.put(rows(4, name="unflushed"))
        writer.delete(keys(1))
    expected = {2: "x", 3: "x", 4: "unflushed"}

    assert seen(table) == expected
    table.run(memwal_core.MergeRequest())
    assert seen(table) == expected
    assert seen(memwal_core.open(uri), consistency="durable") == expected
    assert seen(memwal_core.open(uri)) == {1: "x", 2: "x", 3: "x"}  # What is flushed, as it was asked for.
    with table.writer() as second:
        second.put(rows(2, name="later"))
        assert seen(table) == expected | {2: "later"}


def test_rows_never_vanish_while_a_writer_closes(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memwal_core.create(uri, SCHEMA, key="id")
    table = memwal_core.open(uri, settings=NOT_DURABLE)
    writer = table.writer()
    writer.put(rows(1))
    [region] = writer.writers.values()
    reached, go_on = threading.Event(), threading.Event()
    close = region.close

    def close_late() -> None:
        reached.set()
        assert go_on.wait(60)
        close()

    monkeypatch.setattr(region, "close", close_late)
    closing = threading.Thread(target=writer.close)
    closing.start()
    assert reached.wait(60)
    during = seen(table)
    go_on.set()
    closing.join()

    assert during == seen(table) == {1: "x"}


def test_writer_may_be_closed_twice_and_then_refuses_rows(table: memwal_core.Table) -> None:
    with table.writer() as writer:
        writer.put(rows(1))
        writer.close()

    assert writer.is_closed
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.put(rows(2))
    with pytest.raises(InvalidRequestError, match="closed"):
        writer.flush()
    assert seen(table) == {1: "x"}


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_table_with_its_views_and_writers_cannot_be_pickled_and_says_what_to_hand_over(
    table: memwal_core.Table, copied: Callable[[object], object]
) -> None:
    with table.writer() as writer:
        writer.put(rows(1))
        for each in (table, table.view(), writer, *writer.writers.values()):
            with pytest.raises(InvalidRequestError, match="hand over its address"):
                copied(each)


def test_two_writers_of_one_table_share_its_regions_and_both_are_read(table: memwal_core.Table) -> None:
    with (
        table.writer(accept=lambda value: value == (0,)) as first,
        table.writer(accept=lambda value: value == (1,)) as second,
    ):
        taken = first.put(rows(*range(20), name="first"))
        rest = second.put(rows(*range(20), name="second"))

        assert taken.rows + rest.rows == 20
        assert 0 < taken.rows < 20
        assert sorted(seen(table)) == list(range(20))
        assert set(seen(table).values()) == {"first", "second"}
        first.close()
        assert sorted(seen(table)) == list(range(20))


def test_second_writer_of_a_region_is_refused_or_takes_it_over_and_both_ones_rows_are_read(uri: str) -> None:
    table = memwal_core.create(uri, SCHEMA, key="id")
    first = table.writer()
    first.put(rows(1, name="first"))
    with table.writer() as second, pytest.raises(ConflictError):
        second.put(rows(2, name="second"))
    with table.writer(takeover="fence") as third:
        third.put(rows(3, name="third"))
        with pytest.raises(MemwalError):
            first.put(rows(4, name="lost"))

        assert seen(table) == {1: "first", 3: "third"}


def test_jobs_run_dry_then_act_and_are_in_the_history(table: memwal_core.Table, uri: str) -> None:
    with table.writer() as writer:
        writer.put(rows(*range(10)))
        writer.flush()

    planned = table.run(memwal_core.MergeRequest(dry_run=True))
    assert (planned.outcome, lance.dataset(uri).count_rows(), table.history().num_rows) == (JobOutcome.PLANNED, 0, 0)
    done = table.run(memwal_core.MergeRequest(), holder="me")
    again = table.run(memwal_core.MergeRequest())

    assert (done.outcome, again.outcome) == (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)
    assert lance.dataset(uri).count_rows() == 10
    runs = table.history("merge").to_pylist()
    assert [run["outcome"] for run in runs] == ["done", "nothing_to_do"]
    assert runs[0]["holder"] == "me"
    assert done.why()
    assert done.to_dict()["outcome"] == "done"


@pytest.mark.parametrize(
    "request_",
    [
        memwal_core.CatchupRequest(),
        memwal_core.CompactRequest(),
        memwal_core.GcRequest(),
        memwal_core.MaintainRequest(),
        memwal_core.MergeRequest(),
        memwal_core.SnapshotRequest(),
    ],
    ids=lambda request: request.info.name,
)
def test_every_job_runs_through_the_front_door(table: memwal_core.Table, request_: Any) -> None:
    with table.writer() as writer:
        writer.put(rows(*range(10)))
        writer.flush()

    report = table.run(request_)

    assert isinstance(report.outcome, JobOutcome)
    assert report.outcome not in (JobOutcome.BLOCKED, JobOutcome.CONFLICT)
    assert report.why()
    assert report.table_uri == table.uri


def test_job_under_way_keeps_a_second_one_from_starting_and_leaves_no_run(table: memwal_core.Table) -> None:
    with (
        table.opened.leases.acquire(memwal_core.MergeRequest().key, "somebody"),
        pytest.raises(LeaseHeldError) as caught,
    ):
        table.run(memwal_core.MergeRequest())

    assert caught.value.facts["holder"] == "somebody"
    assert table.history().num_rows == 0


def test_status_why_and_doctor_tell_of_the_table(table: memwal_core.Table) -> None:
    with table.writer() as writer:
        writer.put(rows(*range(10)))
        writer.flush()
        status = table.status()
        regions = [region.region_id for region in status.regions]

    assert len(regions) == 2
    assert [region.merge_lag_generations for region in status.regions] == [1, 1]
    assert table.why(regions[0]).region_id == regions[0]
    assert [finding for finding in table.doctor().findings if finding.severity.value == "critical"] == []


def test_doctor_finds_a_flushed_memtable_that_is_gone(table: memwal_core.Table, uri: str) -> None:
    with table.writer() as writer:
        writer.put(rows(1))
        writer.flush()
    [gone] = Path(uri).glob("_mem_wal/*/*_gen_1")
    shutil.rmtree(gone)

    assert not table.doctor().healthy
    with pytest.raises(CorruptionError):
        table.to_arrow()


@pytest.mark.parametrize(
    ("schema", "key", "buckets", "problem"),
    [
        (SCHEMA, "nme", 1, "columns that the schema does not have"),
        (SCHEMA, ["id", "nme"], 1, "columns that the schema does not have"),
        (SCHEMA, [], 1, "names no column"),
        (SCHEMA, ["id", "id"], 1, "twice"),
        (SCHEMA, "id", 0, "bucket"),
        (pa.schema([("id", pa.float64())]), "id", 1, "type"),
        (pa.schema([("id", pa.list_(pa.int64()))]), "id", 1, "type"),
        (pa.schema([("id", pa.int64()), pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})]),
         "id", 1, "blob"),
        (pa.schema([("id", pa.int64()),
                    pa.field("x", pa.int64(), nullable=False,
                             metadata={"lance-schema:unenforced-primary-key": "true"})]),
         "id", 1, "marks other columns"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused_before_anything_is_written(
    tmp_path: Path, schema: pa.Schema, key: str | Sequence[str], buckets: int, problem: str
) -> None:
    uri = tmp_path / "t.lance"

    with pytest.raises(InvalidRequestError, match=problem) as caught:
        memwal_core.create(str(uri), schema, key=key, buckets=buckets)

    assert caught.value.remedy
    assert not uri.exists()


def test_address_that_is_taken_is_refused_and_the_table_there_is_left_alone(table: memwal_core.Table, uri: str) -> None:
    with table.writer() as writer:
        writer.put(rows(1))

    with pytest.raises(InvalidRequestError, match="there is a table at this address already") as caught:
        memwal_core.create(uri, pa.schema([("other", pa.int64())]), key="other")

    assert "open it" in caught.value.remedy
    assert caught.value.__cause__ is None  # Users saw first that the outcome of a commit was unknown.
    assert seen(table) == {1: "x"}


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_create_that_was_interrupted_is_finished_when_it_is_repeated(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left a plain table: repeated, it was refused, and nothing named `memwal enable`."""
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"unit": "m"}), ("name", pa.string())], metadata={"a": "b"})
    with monkeypatch.context() as interrupted:
        interrupted.setattr(memwal_core.Table, "enable", interrupt)
        with pytest.raises(KeyboardInterrupt):
            memwal_core.create(uri, schema, key="id")

    for other in (schema.remove_metadata(), schema.append(pa.field("more", pa.int8()))):
        with pytest.raises(InvalidRequestError, match="there is a table at this address already") as caught:
            memwal_core.create(uri, other, key="id")
        assert "memwal enable" in caught.value.remedy
    table = memwal_core.create(uri, schema, key="id", buckets=2)

    with table.writer() as writer:
        writer.put(rows(1))
    assert seen(table) == {1: "x"}
    with pytest.raises(InvalidRequestError, match="there is a table at this address already"):
        memwal_core.create(uri, schema, key="id", buckets=2)


def test_table_that_others_made_is_not_taken_for_an_interrupted_create(uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    memwal_core.create(f"{uri}-model", schema, key="id")
    keyed = lance.dataset(f"{uri}-model").schema
    lance.write_dataset(pa.table({"id": [1], "name": ["x"]}, schema=keyed), uri)

    with pytest.raises(InvalidRequestError, match="there is a table at this address already"):
        memwal_core.create(uri, schema, key="id")


def test_table_that_does_not_exist_is_not_found(uri: str) -> None:
    with pytest.raises(ObjectNotFoundError):
        memwal_core.open(uri)


def test_consistency_may_be_named_and_wrong_names_are_refused(table: memwal_core.Table, uri: str) -> None:
    with table.writer() as writer:
        writer.put(rows(1))

        assert seen(table, consistency="latest") == {}
        assert seen(memwal_core.open(uri, consistency="durable")) == {1: "x"}
        with pytest.raises(InvalidRequestError, match="no such consistency"):
            table.to_arrow(consistency="now")
        with pytest.raises(InvalidRequestError, match="no such consistency"):
            memwal_core.open(uri, consistency="now")
        with pytest.raises(InvalidRequestError, match="needs a writer of this process"):
            memwal_core.open(uri).count(consistency="in_process")


def test_table_of_others_is_enabled_and_written(uri: str) -> None:
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key), pa.field("name", pa.string())])
    lance.write_dataset(rows(1, 2, name="old").cast(schema), uri)
    table = memwal_core.open(uri)
    with pytest.raises(InvalidRequestError):
        table.writer()
    table.enable([bucket_spec(1, "id", table.base.state().field_ids, 1)])
    with table.writer() as writer:
        writer.put(rows(2, name="new"))

        assert seen(table) == {1: "old", 2: "new"}
    with pytest.raises(InvalidRequestError, match="already"):
        table.enable()


def test_package_shows_what_it_exports_and_each_name_leads_to_it() -> None:
    """``dir`` and completion showed nothing, and six of the jobs could be asked for only from deep modules."""
    assert set(memwal_core.__all__) <= set(dir(memwal_core))
    found = {name: getattr(memwal_core, name) for name in memwal_core.__all__}

    assert {request.__name__ for request in REQUESTS} <= set(found)
    assert all(found[name] is request for request in REQUESTS for name in [request.__name__])
    assert issubclass(InvalidRequestError, memwal_core.MemwalError)
    assert memwal_core.__version__ == version("memwal-core")


def test_path_and_one_component_are_taken_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "people.lance"
    created = memwal_core.create(path, SCHEMA, key="id", regions="bucket(id, 3)")

    assert memwal_core.open(path).uri == created.uri == str(path)
    assert repr(created) == f"Table({str(path)!r})"
    with created.writer() as writer:
        writer.put(rows(1))
        assert repr(writer) == f"TableWriter({str(path)!r}, regions=1)"
    assert repr(writer) == f"TableWriter({str(path)!r}, closed)"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda table: table.to_arrow("id > 1"), "`request` is no ScanRequest"),
        (lambda table: table.scan({"limit": 1}), "`request` is no ScanRequest"),
        (lambda table: table.vector_search([0.1, 0.2]), "`query` is no VectorQuery"),
        (lambda table: table.full_text_search("words"), "`query` is no TextQuery"),
        (lambda table: table.run("merge"), "`request` is no JobRequest"),
        (lambda table: table.run(memwal_core.MergeRequest), "`request` is no JobRequest"),
        (lambda table: table.thaw("accept"), "`decision` is no Decision"),
        (lambda table: memwal_core.open(table.uri, settings={"merge": {}}), "`settings` is no Settings"),
        (lambda table: memwal_core.open(5), "the address is neither text nor a path"),
        (lambda table: memwal_core.open(table.uri.encode()), "the address is neither text nor a path"),
        (lambda _: memwal_core.create("new.lance", {"id": "int64"}, key="id"), "`schema` is no Schema"),
        (lambda _: memwal_core.create("new.lance", SCHEMA, key=None), "columns are given by a list of names"),
        (lambda _: memwal_core.create("new.lance", SCHEMA, key="id", regions=[5]), "columns are given by a list"),
        (lambda _: memwal_core.create("new.lance", SCHEMA, key="id", buckets=2.5), "`buckets` is no number"),
        (
            lambda _: memwal_core.create("new.lance", SCHEMA, key="id", buckets=4, regions=["name"]),
            "divided into buckets or by components, not both",
        ),
    ],
)
def test_argument_of_a_wrong_kind_is_refused_in_our_words(
    table: memwal_core.Table, call: Callable[[memwal_core.Table], object], what: str
) -> None:
    """Python's own errors came from inside the library; ``buckets`` beside ``regions`` was ignored."""
    with pytest.raises(InvalidRequestError, match=what):
        call(table)


def test_freeze_is_ended_by_the_names_of_choice_and_cause_and_by_no_others(table: memwal_core.Table) -> None:
    """A name in place of the enumeration ended in an AttributeError, after the run was recorded."""
    table.freeze("a test", by="me")

    for wrong in ({"choice": "agree"}, {"choice": "accept", "cause": "by-hnd"}, {"choice": None}):
        with pytest.raises(InvalidRequestError, match="there is no such c"):
            memwal_core.Decision(**wrong, by="me")
    assert table.thaw(memwal_core.Decision("accept", by="me", cause="by-hand")).outcome is JobOutcome.DONE
    assert table.thaw().outcome is JobOutcome.NOTHING_TO_DO


NO_NAMES: tuple[object, ...] = ("", " ", None, 5, "\ud800")


@pytest.mark.parametrize("name", NO_NAMES)
def test_whoever_says_nothing_neither_freezes_nor_decides(table: memwal_core.Table, name: object) -> None:
    """A freeze by nobody was taken; one by None left a history that nothing could read any more."""
    for call in (
        lambda: table.freeze("a test", by=name),
        lambda: table.freeze(name, by="me"),
        lambda: memwal_core.Decision("accept", by=name),
    ):
        with pytest.raises(InvalidRequestError, match="needs a"):
            call()
    if name:
        with pytest.raises(InvalidRequestError, match="needs a holder"):
            table.run(memwal_core.MergeRequest(), holder=name)
    assert not table.thaw().active
    assert table.history().num_rows == 0


def test_history_of_a_job_that_does_not_exist_is_refused(table: memwal_core.Table) -> None:
    """It was empty, like that of a job that never ran."""
    for wrong in ("bogus", "", 5):
        with pytest.raises(InvalidRequestError, match="there is no such job"):
            table.history(wrong)
    for right in ("merge", "freeze", "thaw"):
        assert table.history(right).num_rows == 0
