"""The command and the job: nothing is deleted unasked, and exit codes say what happened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import FrozenError, InvalidRequestError
from testkit.tables.garbage import gc_admin, make_merged_table, only_region
from testkit.tables.people import people

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def uri(tmp_path) -> str:
    return make_merged_table(str(tmp_path / "t")).uri


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "MEMWAL_GC__GRACE_S": "0"})


def recorded(uri: str) -> int:
    admin = gc_admin(uri)
    return len(admin.opened.manifests.load(only_region(admin)).flushed_generations)


def test_command_only_shows_the_plan(uri):
    result = run("gc", uri)

    assert result.exit_code == 0
    assert "would drain or delete" in result.stdout
    assert "drain _mem_wal/" in result.stdout
    assert recorded(uri) == 3
    assert not Path(uri, "_mem_wal", "_leases", "gc").exists()


@pytest.mark.req("GC-28")
def test_command_deletes_when_asked_and_then_finds_nothing(uri):
    done = run("gc", uri, "--yes")
    again = run("gc", uri, "--yes")

    assert (done.exit_code, again.exit_code) == (0, 3)
    assert recorded(uri) == 0
    assert not list(Path(uri, "_mem_wal").rglob("*_gen_*"))


def test_command_prints_one_json_document(uri):
    document = json.loads(run("gc", uri, "--json").stdout)

    assert (document["job"], document["outcome"]) == ("gc", "planned")


def test_command_on_a_frozen_table_ends_with_8_and_the_reason(uri):
    lance.write_dataset(people(1), uri, mode="overwrite")

    result = run("gc", uri, "--yes")

    assert isinstance(result.exception, FrozenError)
    assert result.exception.exit_code == 8
    assert result.exception.facts["causes"] == ["index-gone"]
    assert recorded(uri) == 3


def test_command_refuses_unsafe_retention(uri):
    result = CliRunner().invoke(app, ["gc", uri], env={"MEMWAL_GC__ORPHAN_AGE_S": "5"})

    assert isinstance(result.exception, InvalidRequestError)
    assert "gc.allow_unsafe_retention" in str(result.exception)


@pytest.mark.slow
@pytest.mark.req("GC-30")
def test_job_plans_deletes_and_reports(uri, tmp_path):
    report = tmp_path / "report.json"

    def job(*, regions: Sequence[str] = (), delete: bool = True, **values: object) -> int:
        document = {"uri": uri, "request": {"dry_run": not delete, "regions": list(regions)}, **values}
        command = [sys.executable, str(ROOT / "jobs" / "gc.py"), json.dumps(document)]
        return subprocess.run(command, cwd=ROOT, check=False, env=None, capture_output=True).returncode

    assert job(delete=False, report=str(report)) == 0
    assert json.loads(report.read_text())["outcome"] == "planned"
    assert recorded(uri) == 3
    assert job(holder="run-1", report=str(report)) == 0
    assert json.loads(report.read_text())["done"]["flushed_memtable"]["items"] == 3
    assert job(holder="run-2") == 3
    assert job(holder="run-3", ok_when_nothing=True) == 0
    assert job(regions=["nonsense"]) == 2
