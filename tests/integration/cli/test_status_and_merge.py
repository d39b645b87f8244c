"""The commands on a real table: what they print, and with which code they end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.table import Table
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)
MEMWAL = [sys.executable, "-c", "from memwal_core.cli import main; main()"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    address = str(tmp_path / "t")
    make_people_table(address, rows=people(1, 2))
    write_native_generations(address, REGION, [[Put(people(1, 3, name="g1"))], [Put(people(4, name="g2"))]])
    return address


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_status_shows_regions_and_lag(uri):
    result = run("status", uri)
    assert result.exit_code == 0
    assert str(REGION) in result.stdout
    assert "1-2 FLUSHED" in result.stdout
    assert "waiting for a merge: 2 generations" in result.stdout


def test_status_shows_the_regions_with_most_to_do_and_counts_the_others(tmp_path):
    """A table of a hundred regions took seven hundred lines, and what waited was somewhere among them."""
    table = Table.open(make_people_table(str(tmp_path / "t"), buckets=30).uri)
    with table.writer() as writer:
        writer.put(people(*range(300)))
        writer.flush()
        table.run(MergeRequest())
        writer.put(people(*range(6)))
        writer.flush()
    late = {str(region.region_id) for region in table.status().regions if region.merge_lag_generations}
    assert 1 < len(late) < 10

    by_default, everything = run("status", table.uri), run("status", table.uri, "--limit", "30")
    few = run("status", table.uri, "--limit", str(len(late)))

    assert "20 regions not shown: 0 with a merge lag, 0 with a WAL lag; --limit 30 shows all" in by_default.stdout
    assert set(re.findall(r"[0-9a-f-]{36}", few.stdout)) == late
    assert f"{30 - len(late)} regions not shown: 0 with a merge lag" in few.stdout
    assert len(re.findall(r"[0-9a-f-]{36}", everything.stdout)) == 30
    assert "not shown" not in everything.stdout
    assert f"30 regions not shown: {len(late)} with a merge lag" in run("status", table.uri, "--limit", "0").stdout
    assert len(json.loads(run("status", table.uri, "--json").stdout)["regions"]) == 30


def test_status_json_is_one_document(uri):
    document = json.loads(run("status", uri, "--json").stdout)
    assert document["merge_lag_generations"] == 2
    assert document["regions"][0]["region_id"] == str(REGION)


def test_dry_run_then_merge_then_nothing_to_do(uri):
    planned = run("merge", uri, "--dry-run")
    assert (planned.exit_code, "would merge 2 generations" in planned.stdout) == (0, True)
    done = run("merge", uri)
    assert done.exit_code == 0
    assert "done: 2 generations in 1 commit, 3 rows written" in done.stdout
    assert "0 -> 2" in done.stdout
    again = run("merge", uri)
    assert (again.exit_code, "nothing to do" in again.stdout) == (3, True)


def test_history_that_cannot_be_read_is_named_and_hides_no_other(uri):
    """One damaged file of one job ended the command, while the jobs themselves run on without it."""
    run("merge", uri)
    run("catchup", uri)
    for version in Path(uri, "_mem_wal/_ledger/catchup").rglob("*.json"):
        version.write_bytes(b"{")

    shown, document = run("history", uri), json.loads(run("history", uri, "--json").stdout)
    only = run("history", uri, "--job", "catchup")

    assert (shown.exit_code, only.exit_code) == (0, 0)
    assert "merge" in shown.stdout
    for output in (shown.stdout, only.stdout):
        assert "catchup/table: the history of a job cannot be read: " in output
        assert "_ledger/catchup/table/" in output
    assert [each["job"] for each in document["runs"]] == ["merge"]
    assert (list(document["may_run"]), list(document["unreadable"])) == (["merge/table"], ["catchup/table"])
    assert "has not run yet" not in only.stdout


def test_history_shows_merges_by_hand_but_no_plan(uri):
    """Commands that act left no trace: only cycles and Spark applications were recorded."""
    run("merge", uri, "--dry-run")
    run("merge", uri)
    run("merge", uri)
    held = Table.open(uri).opened.leases.acquire(JobKey("merge"), "the night's run")
    assert isinstance(run("merge", uri).exception, LeaseHeldError)  # It did not run, so there is no run to record.
    held.release()

    done, idle = json.loads(run("history", uri, "--json").stdout)["runs"]

    assert [each["outcome"] for each in (done, idle)] == ["done", "nothing_to_do"]
    assert (done["facts"]["generations"], done["facts"]["rows"]) == (2, 3)
    assert done["facts"]["progress"] == {str(REGION): 2}
    assert 0 < done["facts"]["peak_memory_bytes"] < done["facts"]["memory_limit_bytes"]
    assert len({each["holder"] for each in (done, idle)}) == 2
    # All other times are told with their zone; whoever compared this one with a log of local time was hours off.
    assert run("history", uri).stdout.count(f"{datetime.fromisoformat(done['started']):%Y-%m-%d %H:%M:%S} UTC") >= 1


def test_ledger_that_cannot_be_written_keeps_no_merge_from_working(uri, caplog):
    (Path(uri) / "_mem_wal" / "_ledger").write_text("a file, where a directory is needed")

    ended = run("merge", uri)

    assert (ended.exit_code, "done: 2 generations" in ended.stdout) == (0, True)
    assert caplog.text.count("run not recorded") == 2


def test_release_by_hand_is_recorded_and_a_refused_one_is_no_failed_run(uri):
    QuarantineStore(Table.open(uri).base.store).add(Quarantined(REGION, 2, ("bad",), ""))

    assert isinstance(run("checks", uri, "--release", f"{REGION}:1").exception, InvalidRequestError)
    assert run("checks", uri, "--release", f"{REGION}:2").exit_code == 0

    [entry] = json.loads(run("history", uri, "--json").stdout)["runs"]
    assert (entry["job"], entry["outcome"]) == ("quality", "done")
    assert entry["verdict"] == f"released region {REGION} generation 2"


@pytest.mark.req("MRG-26", "LEASE-06")
def test_merge_while_another_runs_ends_with_code_4_and_says_who_and_until_when(uri):
    held = Table.open(uri).opened.leases.acquire(JobKey("merge"), "the night's run")

    ended = subprocess.run([*MEMWAL, "merge", uri], capture_output=True, text=True, check=False)

    assert ended.returncode == 4
    assert "holder: the night's run" in ended.stderr
    assert f"expires_at: {held.document.expires_at.isoformat()}" in ended.stderr
    assert run("merge", uri, "--dry-run").exit_code == 0


def test_merge_json_of_one_region_in_small_passes(uri):
    result = run("merge", uri, "--json", "--region", str(REGION), "--max-bytes", "1")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (document["outcome"], document["passes"], document["generations"]) == ("done", 2, 2)
    assert document["regions"] == [
        {
            "region_id": str(REGION),
            "merged_before": 0,
            "merged_after": 2,
            "merged_here": 2,
            "waiting": 0,
            "verdict": "complete",
            "evidence": "",
        }
    ]


def test_generations_of_a_stuck_region_wait_in_reports_which_name_the_runbook(uri):
    """Merge and checkpoint said that nothing waits in exactly the regions that only a person can unblock."""
    QuarantineStore(Table.open(uri).base.store).add(Quarantined(REGION, 1, ("bad",), ""))

    for options in (["--dry-run"], []):
        told = run("merge", uri, *options)
        assert told.exit_code == 5
        assert "next: read the verdicts and follow docs/runbooks/quarantined-generations.md" in told.stdout
        (region,) = json.loads(run("merge", uri, *options, "--json").stdout)["regions"]
        assert (region["waiting"], region["verdict"]) == (2, "quarantined: quality")
    checkpoint = run("checkpoint", uri)
    assert checkpoint.exit_code == 5
    assert "2 flushed MemTables not merged" in " ".join(checkpoint.stdout.split())
    assert "docs/runbooks/quarantined-generations.md" in checkpoint.stdout
    assert json.loads(run("checkpoint", uri, "--json").stdout)["unmerged_generations"] == 2


@pytest.mark.parametrize(
    "arguments",
    [["--region", "not-a-uuid"], ["--region", str(native_region_id(9))], ["--storage-option", "no-equals-sign"]],
)
def test_bad_input_is_refused(uri, arguments):
    result = run("merge", uri, *arguments)
    assert isinstance(result.exception, InvalidRequestError)


def test_process_ends_with_the_code_of_the_error_and_explains_it_to_people_or_to_programs(tmp_path):
    command = [*MEMWAL, "status", str(tmp_path / "nowhere")]
    people = subprocess.run(command, capture_output=True, text=True, check=False)
    programs = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)

    assert people.returncode == programs.returncode == json.loads(programs.stdout)["exit_code"] == 2
    assert people.stdout == ""
    assert "next:" in people.stderr
    assert "Traceback" not in people.stderr + programs.stderr


def test_dry_run_says_of_every_region_whether_and_why_it_is_due(uri, tmp_path):
    began = time.time()
    for file in Path(uri, "_mem_wal").rglob("*"):
        os.utime(file, (began - 90, began - 90))
    shown = run("merge", uri, "--dry-run")
    document = json.loads(run("merge", uri, "--dry-run", "--json").stdout)

    assert shown.exit_code == 0
    assert "not due yet: generations" in " ".join(shown.stdout.replace("│", " ").split())
    assert set(document["triggers"]) == {region["region_id"] for region in document["regions"]}
    for region in document["regions"]:
        verdict = document["triggers"][region["region_id"]]
        assert verdict["due"] is False
        waiting = {each["trigger"]: each for each in verdict["triggers"]}
        assert waiting["generations"]["value"] == len(
            next(each for each in document["plan"]["regions"] if each["region_id"] == region["region_id"])["take"]
        )
        assert waiting["generations"]["missing"] > 0
        assert 89 < waiting["age"]["value"] < 91 + time.time() - began


def test_merge_of_due_regions_leaves_the_others(uri, monkeypatch):
    write_native_generations(uri, native_region_id(2), [[Put(people(7, name="g1"))]])
    before = json.loads(run("merge", uri, "--dry-run", "--json").stdout)
    nothing = run("merge", uri, "--due-only", "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["reason"]) == (3, "no region is due")
    sizes = {each["region_id"]: len(each["take"]) for each in before["plan"]["regions"]}
    monkeypatch.setenv("MEMWAL_MERGE_TRIGGERS__GENERATIONS", str(max(sizes.values())))
    due = {region for region, count in sizes.items() if count == max(sizes.values())}
    assert due == {str(REGION)} != set(sizes)

    merged = json.loads(run("merge", uri, "--due-only", "--json").stdout)

    assert merged["outcome"] == "done"
    assert {each["region_id"] for each in merged["regions"] if each["merged_here"]} == due
    assert {region for region, verdict in merged["triggers"].items() if verdict["due"]} == due
