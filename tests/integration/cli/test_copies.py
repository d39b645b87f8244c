"""The commands that copy and relocate a table (S1)."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from testkit.tables.people import people
from tests.integration.jobs.copies.places import make_place, make_table


def test_backup_relocate_and_clone_from_the_command_line(tmp_path: Path) -> None:
    place = make_place("links", tmp_path, None)
    uri, copy, clone = make_table(place).uri, place.uri("copy.lance"), place.uri("clone.lance")
    runner = CliRunner()

    planned = runner.invoke(app, ["backup", uri, copy, "--dry-run", "--json"])
    assert planned.exit_code == 0
    assert json.loads(planned.stdout)["rows"] == 4
    assert not Path(copy).exists()
    made = runner.invoke(app, ["backup", uri, copy])
    assert made.exit_code == 0
    assert f"memwal relocate {copy}" in made.stdout.replace("\n", "")
    assert runner.invoke(app, ["backup", uri, copy]).exit_code == 3
    assert isinstance(runner.invoke(app, ["clone", uri, copy]).exception, InvalidRequestError)
    assert runner.invoke(app, ["clone", uri, clone, "--json"]).exit_code == 0
    assert runner.invoke(app, ["merge", clone]).exit_code == 0

    assert runner.invoke(app, ["relocate", copy, "--dry-run"]).exit_code == 0
    assert runner.invoke(app, ["relocate", copy, "--reason", "a new disk"]).exit_code == 0
    assert runner.invoke(app, ["relocate", copy]).exit_code == 3
    assert runner.invoke(app, ["merge", copy]).exit_code == 0
    history = json.loads(runner.invoke(app, ["history", uri, "--json"]).stdout)
    assert "backup" in json.dumps(history)
    assert place.open("copy.lance").lookup(people(7).select(["id"])).num_rows == 1
