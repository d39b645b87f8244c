"""`memwal explain` on a real table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import make_people_table, people


@pytest.mark.req("RD-22", "RD-37")
def test_plan_and_pruned_regions_are_shown(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=2)) as writer:
        writer.put(people(*range(20)))
        writer.flush()
    text = CliRunner().invoke(app, ["explain", uri])
    filtered = CliRunner().invoke(app, ["explain", uri, "--filter", "id = 3", "--json"])
    document = json.loads(filtered.stdout)

    assert text.exit_code == filtered.exit_code == 0
    assert text.stdout.count("ScanExec") == 3
    assert "regions left out by the filter: none" in text.stdout
    assert document["plan"].count("ScanExec") == 2
    assert len(document["left_out"]) == 1
    assert document["freshness"]["achieved"] == "latest"


def test_in_process_rows_cannot_be_asked_for_from_outside(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    assert CliRunner().invoke(app, ["explain", uri, "--consistency", "in_process"]).exit_code != 0
