"""`memwal status --check` and what people and busy jobs leave behind: what is no failure, and what is not known."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memwal_core.base_table import BaseTable
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import LEASES_DIRECTORY, LEDGER_DIRECTORY, generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=2)
    write_generations(made, list(range(20)), list(range(10, 30)), name="new")
    return made


def check(table: BaseTable) -> tuple[int, dict[str, Mapping[str, Any]]]:
    result = CliRunner().invoke(app, ["status", table.uri, "--check", "--json"])
    return result.exit_code, {each["signal"]: each for each in json.loads(result.stdout)["signals"]}


def ruin(table: BaseTable, directory: str) -> None:
    """Overwrite the newest version of every register below a directory."""
    for found in Path(table.uri, directory).rglob("*.json"):
        if found.name[0].isdigit():
            found.write_bytes(b"no json")


def test_requests_that_were_mistyped_call_nobody(table):
    """O5: three typos were three failures, on-call was paged, and merges paused."""
    wrong = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
    for _ in range(4):
        with pytest.raises(InvalidRequestError):
            Table.open(table.uri).run(MergeRequest(regions=(wrong,)))

    code, signals = check(table)

    assert (code, signals["job_failures"]["value"]) == (0, 0)
    assert Table.open(table.uri).opened.ledger.may_run(JobKey("merge")).allowed


def test_jobs_that_wait_for_a_busy_lease_call_nobody(table):
    """O5: a cycle beside a long merge counted as failed, and the third one paged."""
    opened = Table.open(table.uri).opened
    with opened.leases.acquire(JobKey("merge"), "a long merge"):
        for _ in range(4):
            Table.open(table.uri).run(MaintainRequest())

        code, signals = check(table)

    assert (code, signals["job_failures"]["value"]) == (0, 0)


@pytest.mark.parametrize(("directory", "signal"), [(LEDGER_DIRECTORY, "job_failures"), (LEASES_DIRECTORY, "stuck_job")])
def test_record_that_cannot_be_read_is_unknown_and_warns(table, directory, signal):
    """A lease that kept every merge from running was "ok" with exit code 0."""
    Table.open(table.uri).run(MergeRequest())
    assert check(table)[1][signal]["level"] == "ok"
    ruin(table, directory)

    code, signals = check(table)
    document = json.loads(CliRunner().invoke(app, ["status", table.uri, "--check", "--json"]).stdout)

    assert (signals[signal]["level"], signals[signal]["value"]) == ("unknown", None)
    assert "merge" in signals[signal]["subject"]
    assert (code, document["level"], document["score"]) == (6, "warn", 65)
    [found] = [each for each in document["findings"] if each["finding"] == signal.replace("_", "-")]
    assert "cannot be measured" in found["summary"]
    assert f"{directory}/merge/table/" in found["evidence"]["path"]


def generation_gone(table: BaseTable, region: RegionId) -> None:
    manifest = Table.open(table.uri).opened.manifests.load(region)
    shutil.rmtree(Path(table.uri) / generation_path(region, manifest.flushed_generations[1].path))


def generation_unrecorded(table: BaseTable, region: RegionId) -> None:
    manifest = Table.open(table.uri).opened.manifests.load(region)
    Vandal(table).manifest(region, flushed_generations=manifest.flushed_generations[1:])


def manifest_damaged(table: BaseTable, region: RegionId) -> None:
    Vandal(table).garble_manifest(region)


def quarantined(table: BaseTable, region: RegionId) -> None:
    QuarantineStore(table.store).add(Quarantined(region, 2, ("bad",), ""))


def nothing(_table: BaseTable, _region: RegionId) -> None:
    pass


@pytest.mark.parametrize("damage", [nothing, generation_gone, generation_unrecorded, manifest_damaged, quarantined])
def test_dry_run_of_a_merge_says_what_the_run_does(table, damage: Callable[[BaseTable, RegionId], None]):
    """O10: it said 0 generations where a region was blocked, and the run merged those of the others."""
    damage(table, Table.open(table.uri).opened.manifests.region_ids()[0])
    planned = Table.open(table.uri).run(MergeRequest(dry_run=True))
    done = Table.open(table.uri).run(MergeRequest())

    assert done.generations > 0
    assert planned.why().startswith(f"{done.generations} generations of ")
    assert planned.why().partition("; ")[2] == done.why().partition("; ")[2]
    assert planned.plan.generations == done.generations


@pytest.mark.parametrize(
    ("directory", "subject", "remedy"),
    [
        (LEDGER_DIRECTORY, "job_failures: history of merge/table", "the next run begins a new history"),
        (LEASES_DIRECTORY, "stuck_job: lease of merge/table", "then delete this version of it"),
    ],
)
def test_doctor_says_which_file_keeps_a_signal_unknown_and_what_to_do(
    table: BaseTable, directory: str, subject: str, remedy: str
) -> None:
    """It said that a signal was not measured, and no word of a lease that kept every merge from running."""
    Table.open(table.uri).run(MergeRequest())
    ruin(table, directory)

    said = CliRunner().invoke(app, ["doctor", table.uri]).stdout

    [line] = [line for line in said.splitlines() if line.strip().startswith(subject)]
    assert f"path: {directory}/merge/table/" in line
    assert line.endswith(remedy)
