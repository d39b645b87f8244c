"""`memwal explain` on a real table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.articles import DIMENSIONS, make_articles_table
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
    assert "regions left out: none" in text.stdout
    assert document["plan"].count("ScanExec") == 2
    assert len(document["left_out"]) == 1
    assert document["freshness"]["achieved"] == "latest"


def test_regions_that_a_key_leaves_out_are_shown(tmp_path: Path) -> None:
    """They were those that a filter leaves out, of which a lookup has none."""
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=4)) as writer:
        writer.put(people(*range(40)))
        writer.flush()
        regions = {str(each.region_id) for each in writer.writers.values()}

    document = json.loads(CliRunner().invoke(app, ["explain", uri, "--key", "3", "--json"]).stdout)
    (read,) = (each for each in regions if each in document["plan"])
    assert set(document["left_out"]) == regions - {read}
    shown = CliRunner().invoke(app, ["explain", uri, "--key", "3"]).stdout
    assert all(each in shown.partition("regions left out: ")[2] for each in regions - {read})


def test_in_process_rows_cannot_be_asked_for_from_outside(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    assert CliRunner().invoke(app, ["explain", uri, "--consistency", "in_process"]).exit_code != 0


def test_analyze_runs_the_read_and_shows_its_counters(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, rows=people(*range(10)), buckets=1)) as writer:
        writer.put(people(*range(5, 20)))
        writer.flush()

    text = CliRunner().invoke(app, ["explain", uri, "--analyze"])
    looked_up = CliRunner().invoke(app, ["explain", uri, "--key", "3", "--analyze", "--json"])
    planned = CliRunner().invoke(app, ["explain", uri, "--key", "3"])
    document = json.loads(looked_up.stdout)

    assert "20 rows in" in text.stdout
    assert "rows masked: 5" in text.stdout
    assert [each["keys_ruled_out"] for each in document["filters"]] == [1]
    assert document["sources_opened"] == ["base_table[gen=-1]"]
    assert document["requests"]["lance_read_bytes"] > 0
    assert planned.stdout.count("BloomFilterGuardExec") == 1
    assert "rows in" not in planned.stdout


def test_searches_are_explained_and_analyzed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_articles_table(uri, rows=300, kinds=("INVERTED", "IVF_FLAT"))
    vector = f"vec={[0.5] * DIMENSIONS}"

    runs = {
        "KNNExec: base_table[gen=-1], k=3": ["--nearest", vector, "-k", "3"],
        "FTSExec: base_table[gen=-1]": ["--words", "title=old", "-k", "3"],
    }
    for expected, options in runs.items():
        assert expected in CliRunner().invoke(app, ["explain", uri, *options]).stdout
        assert "3 rows in" in CliRunner().invoke(app, ["explain", uri, *options, "--analyze"]).stdout


@pytest.mark.parametrize("version", [-1, 0, 99, 2**64])
def test_version_that_there_is_not_is_refused(tmp_path: Path, version: int) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    ended = CliRunner().invoke(app, ["explain", uri, "--version", str(version)])

    assert isinstance(ended.exception, InvalidRequestError | ObjectNotFoundError)
    assert ended.exception.facts["version"] == version


def test_two_reads_at_once_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    for options in (["--key", "1", "--words", "a=b"], ["--key", "1", "--filter", "id = 1"], ["--nearest", "vec"]):
        assert CliRunner().invoke(app, ["explain", uri, *options]).exit_code != 0
