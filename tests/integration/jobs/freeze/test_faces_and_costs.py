"""Where a freeze is said, which causes jobs find themselves, and what the comparison costs a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import lance
import pytest
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    DuplicateKeysError,
    FrozenError,
    InvalidRequestError,
)
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.job import Piece
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.runner import execute, load_job
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.findings import Level
from memwal_core.reader.freshness import FRESHNESS_KEY
from memwal_core.settings import GcSettings, WalCollection
from memwal_core.spark.options import WriteOptions
from memwal_core.spark.writing.writers import plan_write
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.garbage import OLD_S, gc_admin, later, write_generations
from testkit.tables.people import make_people_table, people


@pytest.fixture
def uri(tmp_path: Path) -> str:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1], [3], name="new")
    Table.open(made.uri).run(MergeRequest())
    Table.open(made.uri).run(SnapshotRequest())
    Table.open(made.uri).run(SnapshotRequest())
    return made.uri


def frozen(uri: str) -> Table:
    table = Table.open(uri)
    table.freeze("the loader is broken", by="anna")
    return table


@pytest.mark.parametrize("request_", [MergeRequest(), SnapshotRequest()], ids=lambda each: each.info.name)
def test_idle_run_asks_the_record_three_times_and_then_once_and_writes_nothing(
    uri: str, request_: MergeRequest
) -> None:
    store = FaultyStore(open_store(uri))
    opened = OpenTable.of(BaseTable.open(uri, store=store))
    asked = []
    for _ in range(2):
        store.calls.clear()
        assert execute(opened, request_).outcome is JobOutcome.NOTHING_TO_DO
        asked.append([each.operation for each in store.calls if "_record" in each.path])
    assert asked == [["get", "head", "get"], ["head"]]


def test_second_report_of_a_run_does_not_read_the_first_again(uri: str) -> None:
    """This pays for what the record costs."""
    store = FaultyStore(open_store(uri))
    execute(OpenTable.of(BaseTable.open(uri, store=store)), CatchupRequest())
    read = [each.operation for each in store.calls if "_ledger" in each.path and each.operation == "get"]
    assert len(read) == 2


def test_result_of_a_read_warns_of_the_freeze(uri: str) -> None:
    assert Table.open(uri).view().freshness.frozen == ()
    frozen(uri)
    rows = Table.open(uri).to_arrow()
    assert json.loads(rows.schema.metadata[FRESHNESS_KEY])["frozen"] == ["by-hand"]
    assert rows.num_rows == 3


def test_long_lived_reader_learns_of_a_freeze_within_half_a_minute(uri: str) -> None:
    clock = ManualClock()
    reader = Table.open(uri, clock=clock)
    assert reader.view().freshness.frozen == ()
    frozen(uri)
    clock.advance(31)
    assert reader.view().freshness.frozen == ("by-hand",)


def test_writers_go_on_while_a_table_is_frozen(uri: str) -> None:
    frozen(uri)
    with Table.open(uri).writer() as writer:
        writer.put(people(9, name="acknowledged"))
    assert 9 in Table.open(uri).to_arrow(consistency="durable")["id"].to_pylist()


def test_status_health_and_doctor_say_it(uri: str) -> None:
    table = frozen(uri)
    assert [each.cause for each in table.status().frozen] == [FreezeCause.BY_HAND]
    for health in (table.health(), table.doctor()):
        assert health.level is Level.PAGE
        (finding,) = [each for each in health.findings if each.finding_id == "table-frozen"]
        assert finding.evidence["reason"] == "the loader is broken"
        assert finding.runbook == "docs/runbooks/frozen-by-hand.md"


def test_commands_freeze_explain_and_thaw(uri: str) -> None:
    run = CliRunner().invoke
    assert run(app, ["thaw", uri]).exit_code == 3
    shown = run(app, ["freeze", uri, "--reason", "the loader is broken", "--by", "anna"])
    assert shown.exit_code == 0
    assert "the loader is broken" in shown.stdout
    assert "the loader is broken" in run(app, ["status", uri]).stdout
    asked = run(app, ["thaw", uri, "--json"])
    assert asked.exit_code == 8
    (active,) = json.loads(asked.stdout)["active"]
    assert (active["cause"], active["by"], active["choices"]) == ("by-hand", "anna", {"accept": "ends the freeze"})
    assert isinstance(run(app, ["thaw", uri, "--choice", "merge-again"]).exception, InvalidRequestError)
    assert run(app, ["thaw", uri, "--choice", "accept", "--dry-run"]).exit_code == 0
    assert isinstance(run(app, ["merge", uri]).exception, FrozenError)
    assert run(app, ["thaw", uri, "--choice", "accept", "--reason", "it works", "--by", "ben"]).exit_code == 0
    assert run(app, ["merge", uri]).exit_code == 3
    told = {each.key.job: each for each in Table.open(uri).opened.ledger.runs() if each.key.job in ("freeze", "thaw")}
    assert told["freeze"].holder == "anna"
    assert (told["thaw"].holder, told["thaw"].facts["choice"], told["thaw"].facts["reason"]) == (
        "ben",
        "accept",
        "it works",
    )


def test_commands_that_are_told_can_be_pasted_whatever_the_address_is(tmp_path: Path) -> None:
    uri = str(tmp_path / "my tables" / "t $(id)")
    make_people_table(uri, rows=people(1, 2), buckets=1)
    command = f"memwal thaw '{uri}'"

    with pytest.raises(FrozenError) as refused:
        frozen(uri).run(MergeRequest())
    assert f"`{command}`" in refused.value.remedy
    for found in (Table.open(uri).doctor(), Table.open(uri).health()):
        [told] = [each for each in found.findings if each.finding_id == "table-frozen"]
        assert told.command == command
        assert f"`{command}`" in told.remedy


def test_reason_that_is_not_utf8_freezes_and_can_be_thawed(uri: str) -> None:
    """A terminal in Latin-1 hands over such arguments."""
    run = CliRunner().invoke
    assert run(app, ["freeze", uri, "--reason", "gr\udcfcn", "--by", "J\udcf6rg"]).exit_code == 0

    assert isinstance(run(app, ["merge", uri]).exception, FrozenError)
    assert run(app, ["thaw", uri, "--choice", "accept", "--reason", "gr\udcfcn", "--by", "J\udcf6rg"]).exit_code == 0

    assert run(app, ["merge", uri]).exit_code == 3
    told = {each.key.job: each.holder for each in Table.open(uri).opened.ledger.runs()}
    assert (told["freeze"], told["thaw"]) == ("J?rg", "J?rg")


def test_user_without_a_name_may_freeze(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as users that the machine's list of users lacks."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 5)

    ended = CliRunner().invoke(app, ["freeze", uri, "--reason", "looking into it"])

    assert ended.exit_code == 0
    assert [each.by for each in Table.open(uri).opened.freezes.active()] == ["unknown"]


def test_several_causes_are_ended_one_by_one(uri: str) -> None:
    table = frozen(uri)
    table.opened.freezes.add(FreezeCause.CHECK_FAILED, {"check": "key_unique"}, "quality")
    with pytest.raises(InvalidRequestError, match="several causes"):
        table.thaw(Decision(Choice.ACCEPT, "anna"))
    assert table.thaw(Decision(Choice.ACCEPT, "anna", FreezeCause.CHECK_FAILED)).outcome is JobOutcome.DONE
    with pytest.raises(FrozenError):
        table.run(MergeRequest())
    table.thaw(Decision(Choice.ACCEPT, "anna"))
    assert table.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO


def test_configuration_of_a_frozen_table_stays(uri: str) -> None:
    before = lance.dataset(uri).version
    lance.dataset(uri).create_scalar_index("name", "BTREE", name="by_name")
    table = frozen(uri)
    with pytest.raises(FrozenError):
        table.configuration.maintain_index("by_name")
    assert lance.dataset(uri).version == before + 1


def test_duplicate_keys_that_a_merge_finds_freeze_the_table(uri: str) -> None:
    lance.write_dataset(people(1, name="loaded twice"), uri, mode="append")
    table = Table.open(uri)
    with pytest.raises(DuplicateKeysError):
        load_job(MergeRequest()).verify(
            JobContext(table.opened, holder="dag"), [Piece("t", MergeRequest(), {"through": {}})], []
        )
    with pytest.raises(FrozenError) as refused:
        Table.open(uri).run(MergeRequest())
    assert refused.value.facts["causes"] == ["duplicate-keys"]


def test_gc_removes_old_versions_of_the_record_and_keeps_what_they_say(uri: str) -> None:
    for number in range(5):
        write_generations(Table.open(uri).base, [20 + number], name="x")
        Table.open(uri).run(MergeRequest())
    frozen(uri)
    found = Table.open(uri).opened.freezes.load()
    admin = gc_admin(uri)
    admin.thaw(Decision(Choice.ACCEPT, "anna"))
    before = len(list((Path(uri) / "_mem_wal" / "_record").iterdir()))
    admin.run(GcRequest(dry_run=False))
    assert len(list((Path(uri) / "_mem_wal" / "_record").iterdir())) < before
    kept = Table.open(uri).opened.freezes.load()
    assert found is not None
    assert kept is not None
    assert kept.memory.progress == found.memory.progress
    assert [each.cause for each in kept.freezes] == [FreezeCause.BY_HAND]


def test_spark_source_refuses_to_write_to_a_frozen_table_and_its_batch_can_be_repeated(uri: str) -> None:
    options = WriteOptions.parse({"path": uri})
    schema = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
    schema = schema.add("score", DoubleType())
    plan_write(options, schema, overwrite=False)
    frozen(uri)
    with pytest.raises(FrozenError):
        plan_write(options, schema, overwrite=False)
    Table.open(uri).thaw(Decision(Choice.ACCEPT, "anna"))
    plan_write(options, schema, overwrite=False)


def test_second_freeze_by_hand_says_that_the_first_reason_stays(uri: str) -> None:
    """Before, it ended as if its reason had been taken."""
    frozen(uri)

    ended = CliRunner().invoke(app, ["freeze", uri, "--reason", "the disk is full", "--by", "bob"])
    for_machines = CliRunner().invoke(app, ["freeze", uri, "--reason", "the disk is full", "--dry-run", "--json"])

    assert (ended.exit_code, for_machines.exit_code) == (3, 3)
    assert "that reason stays" in ended.output
    assert "the loader is broken" in ended.output
    assert json.loads(for_machines.output)["outcome"] == "nothing_to_do"
    assert Table.open(uri).opened.freezes.active()[0].evidence == {"reason": "the loader is broken"}


def in_record(path: str) -> bool:
    return "_record" in path


def test_decision_that_comes_late_ends_no_later_freeze_of_the_same_cause(uri: str) -> None:
    """Two people thawed at once; the slower one ended what a third had frozen meanwhile, while a backup came back."""
    frozen(uri)
    store = FaultyStore(open_store(uri))

    def others_decide(_: object) -> None:
        Table.open(uri).thaw(Decision(Choice.ACCEPT, "bob"))
        Table.open(uri).freeze("a backup is being restored", by="carol")

    store.add(Rule(others_decide, Moment.BEFORE, frozenset({"put_if_absent"}), in_record))
    late = Table(OpenTable.of(BaseTable.open(uri, store=store)))

    with pytest.raises(ConflictError, match="another decision came first"):
        late.thaw(Decision(Choice.ACCEPT, "anna"))
    assert [each.by for each in Table.open(uri).opened.freezes.active()] == ["carol"]


def test_decision_whose_reply_is_lost_is_no_other_one(uri: str) -> None:
    frozen(uri)
    store = FaultyStore(open_store(uri))

    def lose(_: object) -> None:
        raise CommitUnknownError("no reply came", remedy="read it back")

    store.add(Rule(lose, Moment.AFTER, frozenset({"put_if_absent"}), in_record))
    report = Table(OpenTable.of(BaseTable.open(uri, store=store))).thaw(Decision(Choice.ACCEPT, "anna"))

    assert report.outcome is JobOutcome.DONE
    assert Table.open(uri).opened.freezes.active() == ()


@pytest.mark.parametrize("waits_s", [0, 60])
def test_job_that_is_under_way_heeds_a_freeze_half_a_minute_late_at_most(uri: str, waits_s: float) -> None:
    """A collection went on for hours after a person had frozen the table to keep what it deleted."""
    for number in range(5):
        write_generations(Table.open(uri).base, [20 + number], name="x")
        Table.open(uri).run(MergeRequest())
    store, clock = FaultyStore(open_store(uri)), later(OLD_S)

    def freeze(_: object) -> None:
        frozen(uri)
        clock.advance(waits_s)

    store.add(Rule(freeze, Moment.AFTER, frozenset({"delete"})))
    settings = GcSettings(collect_wal=WalCollection.ALL, grace_s=0, concurrency=1)
    admin = gc_admin(uri, settings=settings, store=store, clock=clock)

    if waits_s:
        with pytest.raises(FrozenError, match="a person froze the table"):
            admin.run(GcRequest(dry_run=False))
    else:
        assert admin.run(GcRequest(dry_run=False)).outcome is JobOutcome.DONE
    assert (store.count("delete") == 1) == bool(waits_s)
