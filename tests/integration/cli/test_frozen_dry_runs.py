"""A dry run by hand on a frozen table says that it is frozen, why, and which command ends that; for every job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memwal_core.cli.app import app
from memwal_core.errors import FrozenError
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

ON_SPARK = ("ingest",)
JOBS = tuple(each.info.name for each in REQUESTS if each.info.name not in ON_SPARK)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [1], [3], name="new")
    Table.open(made.uri).run(MergeRequest())
    return made.uri


REFUSED = tuple(
    each.info.name
    for each in REQUESTS
    if each.info.name not in ON_SPARK and (not each.info.acts_on_frozen or each.info.name == "maintain")
)


def dry_run(job: str, uri: str, *options: str) -> Result:
    arguments: Sequence[str] = (f"{uri}-target",) if job in ("backup", "clone") else ()
    return CliRunner().invoke(app, [job, uri, *arguments, "--dry-run", *options])


def test_every_job_is_tried_here_or_on_spark() -> None:
    assert {*JOBS, *ON_SPARK} == {each.info.name for each in REQUESTS}


@pytest.mark.parametrize("job", JOBS)
def test_dry_run_of_a_frozen_table_says_why_and_what_thaws_it(uri: str, job: str) -> None:
    """It planned as if a run would act, and said nothing."""
    before = dry_run(job, uri)
    assert "frozen:" not in before.output
    assert json.loads(dry_run(job, uri, "--json").output)["frozen"] == []
    Table.open(uri).freeze("the loader is broken", by="anna")

    told = dry_run(job, uri)
    plans = job != "relocate"  # It says by itself that no other address ends this freeze.
    assert told.exit_code == (before.exit_code if plans else JobOutcome.BLOCKED.exit_code), "a dry run still plans"
    assert "frozen: jobs leave the table alone until a person decides" in told.output
    assert "the loader is broken" in told.output
    assert f"memwal thaw {uri} --cause by-hand --choice accept" in told.output

    (found,) = json.loads(dry_run(job, uri, "--json").output)["frozen"]
    assert found["cause"] == "by-hand"
    assert found["evidence"] == {"reason": "the loader is broken"}
    assert found["command"] == f"memwal thaw {uri} --cause by-hand --choice accept"


def test_dry_run_names_the_region_that_waits_for_a_person(uri: str) -> None:
    """Plans of merges, for Airflow too, asked the vanished region for its manifest and failed."""
    (region_id,) = Table.open(uri).opened.manifests.region_ids()
    shutil.rmtree(Path(uri) / "_mem_wal" / str(region_id))
    Table.open(uri).run(MergeRequest())

    told = dry_run("merge", uri)
    assert "frozen: jobs leave a region alone until a person decides" in told.output
    (found,) = json.loads(dry_run("merge", uri, "--json").output)["frozen"]
    assert (found["cause"], found["region_id"], found["scope"]) == ("region-vanished", str(region_id), "region")


@pytest.mark.parametrize("job", [*REFUSED, "checkpoint"])
def test_dry_run_of_a_copied_table_says_that_a_run_would_freeze_it(uri: str, job: str) -> None:
    """It planned without a word, and the first real run refused and froze the table."""
    assert json.loads(dry_run(job, uri, "--json").output)["would_be_frozen"] == []
    copy = f"{uri}-copy"
    shutil.copytree(uri, copy)
    before = Table.open(copy).opened.freezes.load()

    told = dry_run(job, copy)
    assert "would be frozen: a run would leave the table alone until a person decides" in told.output
    assert "docs/runbooks/address-changed.md" in told.output
    document = json.loads(dry_run(job, copy, "--json").output)
    (found,) = document["would_be_frozen"]
    assert (found["cause"], found["scope"], found["region_id"]) == ("address-changed", "table", None)
    assert found["evidence"]["address"] == copy
    assert document["frozen"] == []

    assert Table.open(copy).opened.freezes.load() == before, "a dry run freezes nothing"
    run = CliRunner().invoke(app, ["merge", copy])
    assert isinstance(run.exception, FrozenError)
    assert json.loads(dry_run(job, copy, "--json").output)["would_be_frozen"] == [], "it is frozen now"


def test_dry_run_names_the_region_that_a_run_would_park(uri: str) -> None:
    """It planned without a word."""
    (region_id,) = Table.open(uri).opened.manifests.region_ids()
    shutil.rmtree(Path(uri) / "_mem_wal" / str(region_id))

    (found,) = json.loads(dry_run("snapshot", uri, "--json").output)["would_be_frozen"]
    assert (found["cause"], found["region_id"], found["scope"]) == ("region-vanished", str(region_id), "region")
    assert "would be frozen: a run would leave a region alone" in dry_run("snapshot", uri).output
