"""`memwal doctor`, `why`, `history` and `status`, as people and programs call them."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import InvalidRequestError
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(5)))
    write_native_generations(uri, REGION, [[Put(people(1, 2))]])
    return uri


def memwal(*arguments):
    return CliRunner().invoke(app, list(arguments))


def facts_of(refused):
    assert isinstance(refused.exception, InvalidRequestError)
    return refused.exception.facts


def test_doctor_of_a_healthy_table_exits_with_zero(uri):
    shown = memwal("doctor", uri)
    assert shown.exit_code == 0
    assert shown.output.strip().endswith("healthy")
    assert json.loads(memwal("doctor", uri, "--json").output)["findings"] == []


def test_doctor_of_a_broken_table_exits_with_five_and_says_what_to_do(uri):
    Vandal(Table.open(uri).base).garble_manifest(REGION)
    shown = memwal("doctor", uri)
    assert shown.exit_code == 5
    for text in ("critical: manifest-unreadable", str(REGION), "risk:", "next:", "needs an operator"):
        assert text in shown.output
    document = json.loads(memwal("doctor", uri, "--json").output)
    assert document["findings"][0]["finding"] == "manifest-unreadable"
    assert document["findings"][0]["remedy"]


@pytest.mark.req("SHD-19")
@pytest.mark.parametrize("command", ["status", "doctor"])
def test_output_speaks_either_vocabulary_and_the_files_stay(uri, command):
    before = sorted(info.path for info in Table.open(uri).base.store.list_objects(""))
    ours = memwal(command, uri, "--json").output
    theirs = memwal(command, uri, "--json", "--vocabulary", "shard").output
    assert "regions" in json.loads(ours)
    assert "shards" in json.loads(theirs)
    assert "regions" not in json.loads(theirs)
    assert re.search(r"\bshards?\b", memwal(command, uri, "--vocabulary", "shard").output)
    assert sorted(info.path for info in Table.open(uri).base.store.list_objects("")) == before


@pytest.mark.req("SHD-19")
def test_every_field_of_the_status_has_its_other_name(uri):
    (region,) = json.loads(memwal("status", uri, "--json", "--vocabulary", "shard").output)["shards"]
    assert region["shard_id"] == str(REGION)
    assert "replay_after_wal_entry_position" in region
    assert not [name for name in region if name.startswith("region")]


def test_why_shows_every_job(uri):
    shown = memwal("why", uri, str(REGION))
    assert shown.exit_code == 0
    for job in ("flush", "merge", "gc", "snapshot"):
        assert job in shown.output
    jobs = [verdict["job"] for verdict in json.loads(memwal("why", uri, str(REGION), "--json").output)["verdicts"]]
    assert jobs == ["flush", "merge", "gc", "snapshot"]


@pytest.mark.parametrize(
    "told", [[], [str(REGION)[:4]], [str(REGION)[:9].upper()]], ids=["nothing", "begin", "capitals"]
)
def test_why_takes_as_much_of_a_region_as_tells_it_from_the_others(uri, told):
    assert json.loads(memwal("why", uri, *told, "--json").output)["region_id"] == str(REGION)


def test_why_names_the_regions_among_which_it_cannot_choose(uri):
    write_native_generations(uri, native_region_id(2), [[Put(people(3))]])
    assert facts_of(memwal("why", uri))["first"] == [str(REGION), str(native_region_id(2))]
    assert facts_of(memwal("why", uri, "ffff"))["regions"] == 0


def test_history_shows_runs_and_pauses(uri):
    table = Table.open(uri)
    for number in range(3):
        run = table.opened.new_run(JobKey("merge"), f"airflow-{number}")
        table.opened.ledger.end(
            run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError", verdict="no answer")
        )
    document = json.loads(memwal("history", uri, "--json").output)
    assert [run["holder"] for run in document["runs"]] == ["airflow-0", "airflow-1", "airflow-2"]
    assert document["may_run"]["merge/table"]["allowed"] is False
    assert json.loads(memwal("history", uri, "--json", "--job", "gc").output)["runs"] == []
    shown = memwal("history", uri, "--last", "1").output
    assert "airflow-2"[:6] in shown
    assert "3 failures in a row" in shown
    assert table.history().num_rows == 3
