"""`memwal snapshot`, `catchup` and `compact`, and their jobs: what they print, and with which code they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.spark.application import main
from memwal_core.table import Table
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations

REGION = native_region_id(1)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    address = str(tmp_path / "t")
    table = make_articles_table(address, rows=100, kinds=("BTREE", "INVERTED"))
    generations = [articles(100 * generation, 20) for generation in range(1, 4)]
    write_native_generations(address, REGION, [[Put(rows)] for rows in generations])
    for generation, rows in enumerate(generations, start=1):
        merge_natively(table, rows, {REGION: generation})
    return address


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.mark.req("BLD-21")
def test_snapshot_is_planned_published_and_then_nothing_to_do(uri: str) -> None:
    planned = run("snapshot", uri, "--dry-run")
    assert (planned.exit_code, "would publish 1 region inside the table manifest" in planned.stdout) == (0, True)
    done = run("snapshot", uri)
    assert done.exit_code == 0
    assert "done: 1 region inside the table manifest, 1 changed" in done.stdout
    again = run("snapshot", uri)
    assert (again.exit_code, "nothing has changed" in again.stdout) == (3, True)
    forced = json.loads(run("snapshot", uri, "--force", "--json").stdout)
    assert (forced["job"], forced["outcome"], forced["plan"]["publishes"]) == ("snapshot", "done", True)


@pytest.mark.req("CAT-14")
def test_catchup_is_planned_run_and_then_nothing_to_do(uri: str) -> None:
    planned = run("catchup", uri, "--dry-run")
    assert (planned.exit_code, "behind: rows are not indexed" in planned.stdout) == (0, True)
    one = json.loads(run("catchup", uri, "--index", "id_idx", "--json").stdout)
    results = {index["index"]: index["result"] for index in one["indexes"]}
    assert results == {"id_idx": "extended", "title_idx": "none"}
    done = run("catchup", uri)
    assert (done.exit_code, "catch-up done: 60 rows indexed" in done.stdout) == (0, True)
    again = run("catchup", uri)
    assert (again.exit_code, "caught up" in again.stdout) == (3, True)


def test_compact_is_planned_run_and_then_nothing_to_do(uri: str) -> None:
    assert run("compact", uri).exit_code == 3
    planned = run("compact", uri, "--dry-run", "--force", "--remove-versions")
    assert planned.exit_code == 0
    assert "would rewrite 4 of 4 fragments" in planned.stdout
    assert "would remove 0 versions" in planned.stdout
    done = run("compact", uri, "--force")
    assert (done.exit_code, "4 -> 1 fragment in 1 commit" in done.stdout) == (0, True)
    again = json.loads(run("compact", uri, "--force", "--json").stdout)
    assert (again["job"], again["outcome"], again["rewrites"]) == ("compact", "nothing_to_do", [])


@pytest.mark.parametrize(
    ("name", "request_values"), [("snapshot", {}), ("catchup", {"merge_segments": True}), ("compact", {"force": True})]
)
def test_job_reports_as_json_and_ends_with_the_code_of_its_outcome(
    uri: str, tmp_path: Path, name: str, request_values: dict[str, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.json"

    def job(*, dry_run: bool = False, **values: object) -> int:
        request = {**request_values, **({"dry_run": True} if dry_run else {})}
        return main(name, [json.dumps({"uri": uri, "request": request, **values})])

    assert job(dry_run=True, report="-") == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "planned"
    assert job(report=str(target), holder="run") == 0
    document = json.loads(target.read_text())
    assert (document["job"], document["outcome"]) == (name, "done")
    assert job() == 3
    assert job(ok_when_nothing=True) == 0
    runs = Table.open(uri).opened.ledger.runs(name)  # A dry run is no run.
    assert [run.outcome.value for run in runs] == ["done", "nothing_to_do", "nothing_to_do"]
    assert runs[0].holder == "run"


def test_job_on_a_table_that_does_not_exist_ends_with_code_2(tmp_path: Path, capsys) -> None:
    assert main("snapshot", [json.dumps({"uri": str(tmp_path / "none")})]) == 2
    assert "error:" in capsys.readouterr().err


def test_report_that_has_no_place_is_refused_before_the_work(uri: str, tmp_path: Path, capsys) -> None:
    """Before, the job was done, and its application ended with a traceback."""
    before = Table.open(uri).base.state().version

    for target in (tmp_path, tmp_path / "none" / "report.json"):
        assert main("snapshot", [json.dumps({"uri": uri, "report": str(target)})]) == 2

    assert "the report cannot be written there" in capsys.readouterr().err
    assert Table.open(uri).base.state().version == before


def test_report_that_cannot_be_written_is_told_with_what_was_done(uri: str, capsys) -> None:
    assert main("snapshot", [json.dumps({"uri": uri, "report": "/dev/full"})]) == 4

    said = capsys.readouterr().err
    assert "of work that was done" in said
    assert "No space left" in said
    assert Table.open(uri).run(SnapshotRequest()).outcome is JobOutcome.NOTHING_TO_DO
