"""A maintenance cycle on real tables: its order, its reports, where it stops, and what it remembers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import read_snapshot
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.plan import StepEnd, StepName
from memwal_core.jobs.cycle.report import MaintainReport, StepReport
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import DAY_S, CompactSettings, GcSettings, LedgerSettings, Settings, WalCollection
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.damage import Vandal
from testkit.faults.faulty_store import FaultyStore
from testkit.rng import seeded_rng
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import later, write_generations
from testkit.tables.people import make_people_table, people, reopened, with_clock

ROOT = Path(__file__).resolve().parents[4]
SETTINGS = Settings(
    compact=CompactSettings(min_fragments=2),
    gc=GcSettings(grace_s=0, collect_wal=WalCollection.ALL, register_min_age_s=DAY_S),
)
FORGETFUL = CompactSettings(min_fragments=2, retention_s=3600, keep_versions=1)
ORDER = ["flush", "quality", "merge", "verify", "catchup", "quality", "compact", "catchup", "snapshot", "gc"]
UNCHECKED = {StepName.AUDIT, StepName.CHECK}
"""Steps that nobody asked for."""
ROWS = {1: "a", 2: "p2", 5: "b", 6: "b"}


@pytest.fixture
def uri(tmp_path) -> str:
    """A table with an index, two base fragments and two flushed generations of one region."""
    address = str(tmp_path / "t")
    table = make_people_table(address, rows=people(1, 2), buckets=1)
    table.dataset().create_scalar_index("score", "BTREE")
    write_generations(table, [1, 5], [5, 6], name="a")
    write_generations(table, [5, 6], name="b")
    return address


def admin_of(uri: str, settings: Settings = SETTINGS, clock: ManualClock | None = None, store=None) -> Table:
    opened = Table.open(uri, settings=settings, clock=clock or later(7200), rng=seeded_rng(1))
    if store is None:
        return opened
    return Table(OpenTable.of(with_clock(reopened(opened.base, store, settings), clock or later(7200))))


def outcomes(report: MaintainReport) -> list[str]:
    steps = [step for step in report.steps if step.step not in UNCHECKED]
    return [step.outcome.value if step.end is StepEnd.RAN else step.end.value for step in steps]


def step_of(report: MaintainReport, name: StepName) -> StepReport:
    return next(step for step in report.steps if step.step is name)


@pytest.mark.req("CAT-14", "GC-20", "GC-30", "LEG-27")
def test_whole_cycle_merges_indexes_compacts_publishes_and_collects(uri):
    admin = admin_of(uri)

    report = admin.run(MaintainRequest(delete=True))

    assert [step.job for step in report.steps] == ORDER
    assert report.outcome is JobOutcome.DONE
    assert outcomes(report)[:7] == ["nothing_to_do", "done", "done", "done", "done", "nothing_to_do", "done"]
    state = admin.base.state()
    details = state.require_details()
    (region,) = details.merged_generations
    assert details.merged_generation(region) == 3
    assert details.index_catchup["score_idx"][region] == 3
    assert read_snapshot(admin.base, state) is not None
    assert admin.base.dataset().count_rows() == len(ROWS)
    assert lsm_view(admin.base) == ROWS
    assert admin.doctor().healthy


def test_cycles_come_to_rest_with_nothing_to_do(uri):
    """What one cycle drains, the next one publishes; old versions and what they need go step by step."""
    settings = SETTINGS.model_copy(update={"compact": FORGETFUL})
    outcomes_seen = []
    for _ in range(5):
        last = admin_of(uri, settings).run(MaintainRequest(delete=True, remove_versions=True))
        outcomes_seen.append(last.outcome)
        assert lsm_view(admin_of(uri).base) == ROWS

    assert outcomes_seen[0] is JobOutcome.DONE
    assert outcomes_seen[-2:] == [JobOutcome.NOTHING_TO_DO] * 2
    assert {step.outcome for step in last.steps} == {JobOutcome.NOTHING_TO_DO}
    assert [step_of(last, StepName.FLUSH).end, step_of(last, StepName.CATCH_UP_AGAIN).end] == [StepEnd.SKIPPED] * 2
    (region,) = admin_of(uri).opened.manifests.region_ids()
    assert admin_of(uri).opened.manifests.load(region).flushed_generations == ()


@pytest.mark.req("GC-28")
def test_nothing_is_deleted_where_that_is_switched_off(uri):
    settings = SETTINGS.model_copy(update={"compact": FORGETFUL})
    admin_of(uri, settings).run(MaintainRequest(delete=False))

    report = admin_of(uri, settings).run(MaintainRequest(delete=False, remove_versions=False))

    assert report.steps[-1].outcome is JobOutcome.PLANNED
    assert report.outcome is JobOutcome.NOTHING_TO_DO
    (region,) = admin_of(uri).opened.manifests.region_ids()
    assert len(admin_of(uri).opened.manifests.load(region).flushed_generations) == 3


def test_dry_run_changes_no_object(uri):
    store = FaultyStore(admin_of(uri).base.store)
    before = sorted((info.path, info.etag) for info in store.inner.list_objects(""))

    report = admin_of(uri, store=store).run(MaintainRequest(dry_run=True, delete=True))

    assert report.outcome is JobOutcome.PLANNED
    assert outcomes(report)[:2] == ["nothing_to_do", "planned"]
    assert sorted((info.path, info.etag) for info in store.inner.list_objects("")) == before


def test_cycle_stops_where_a_region_needs_a_human(uri):
    admin = admin_of(uri)
    (region,) = admin.opened.manifests.region_ids()
    recorded = admin.opened.manifests.load(region).flushed_generations
    Vandal(admin.base).manifest(region, flushed_generations=recorded[1:])
    version = admin.base.state().version

    report = admin.run(MaintainRequest(delete=True))

    assert report.outcome is JobOutcome.BLOCKED
    assert outcomes(report) == ["nothing_to_do", "blocked", *["not_reached"] * 6]
    assert str(region) in step_of(report, StepName.MERGE).why
    assert admin.base.state().version == version


@pytest.mark.req("LEASE-06")
def test_job_under_way_elsewhere_is_left_out_and_the_others_run(uri):
    """The cycle ended with `done` and 0 although its merge did not run, and said that every key was there once."""
    admin = admin_of(uri)
    with admin.opened.leases.acquire(JobKey("merge"), "somebody else"):
        report = admin.run(MaintainRequest(delete=True))

    assert (report.outcome, report.outcome.exit_code) == (JobOutcome.CONFLICT, 4)
    merge = step_of(report, StepName.MERGE)
    assert (merge.end, merge.outcome, merge.error) == (StepEnd.SKIPPED, JobOutcome.CONFLICT, None)
    assert ("merge", "conflict") in [row[:2] for row in report.view().grids[0].rows]
    verify = step_of(report, StepName.VERIFY)
    assert (verify.end, verify.why) == (
        StepEnd.SKIPPED,
        "another run merges; what it brings is verified by a later cycle",
    )
    [run] = admin.opened.ledger.runs("maintain")
    assert (run.outcome, run.facts["steps"]["merge"]) == (RunOutcome.BUSY, "conflict")
    assert f"merge: {merge.why}" in report.why()
    assert "another process holds the lease of this job until " in merge.why
    assert [step.end for step in report.steps if step.end is StepEnd.NOT_REACHED] == []
    assert step_of(report, StepName.SNAPSHOT).outcome is JobOutcome.DONE
    assert lsm_view(admin.base) == ROWS


def test_each_job_is_remembered_with_its_outcome_and_progress(uri):
    admin = admin_of(uri)
    admin.run(MaintainRequest(delete=True), holder="nightly")

    runs = admin.opened.ledger.runs()

    assert sorted(run.key.job for run in runs) == sorted([*(job for job in ORDER if job != "quality"), "maintain"])
    assert {run.holder for run in runs} == {"nightly"}
    (region,) = admin.opened.manifests.region_ids()
    record = admin.opened.freezes.load()
    assert record is not None
    assert record.memory.progress == {region: 3}
    (merged,) = admin.opened.ledger.runs("merge")
    assert merged.outcome is RunOutcome.DONE
    assert merged.verdict == "3 generations merged in 1 commit"


def test_job_that_keeps_failing_pauses_and_the_others_run(uri):
    """Bug class 38: one poisoned job must not run again and again, nor hold up the rest."""
    settings = SETTINGS.model_copy(update={"ledger": LedgerSettings(failures_before_cooldown=1)})
    admin = admin_of(uri, settings)
    run = admin.opened.new_run(JobKey("merge"), "nightly")
    admin.opened.ledger.begin(run)
    admin.opened.ledger.end(run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError"))

    paused = admin.run(MaintainRequest())
    forced = admin.run(MaintainRequest(ignore_pauses=True))

    assert step_of(paused, StepName.MERGE).end is StepEnd.PAUSED
    assert "pausing until" in step_of(paused, StepName.MERGE).why
    assert paused.outcome is JobOutcome.CONFLICT
    assert step_of(paused, StepName.SNAPSHOT).outcome is JobOutcome.DONE
    assert step_of(forced, StepName.MERGE).outcome is JobOutcome.DONE


@pytest.mark.parametrize("dry_run", [True, False])
def test_unsafe_retention_is_refused_before_anything_runs(uri, dry_run):
    settings = SETTINGS.model_copy(update={"gc": GcSettings(orphan_age_s=1)})
    admin = admin_of(uri, settings)
    version = admin.base.state().version

    with pytest.raises(InvalidRequestError, match="unsafe"):
        admin.run(MaintainRequest(delete=True, dry_run=dry_run))

    assert admin.base.state().version == version
    assert admin.opened.ledger.runs() == []


def test_damaged_region_parks_itself_and_ends_no_cycle(uri):
    admin = admin_of(uri)
    (region,) = admin.opened.manifests.region_ids()
    Vandal(admin.base).garble_manifest(region)

    report = admin.run(MaintainRequest())

    assert report.outcome is JobOutcome.PARTIAL
    assert str(region) in json.dumps(report.to_dict())
    assert report.steps[-1].end is StepEnd.RAN


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_command_prints_every_step_and_ends_like_the_report(uri):
    planned = run("maintain", uri, "--dry-run")
    done = run("maintain", uri)
    again = json.loads(run("maintain", uri, "--json").stdout)

    assert (planned.exit_code, planned.stdout.startswith("plan of ")) == (0, True)
    assert done.exit_code == 0
    assert "3 generations merged in 1 commit" in done.stdout
    assert (again["job"], again["outcome"]) == ("maintain", "nothing_to_do")
    assert [step["job"] for step in again["steps"]] == ORDER
    assert [step["report"]["job"] for step in again["steps"] if step["step"] == "merge"] == ["merge"]


def test_command_on_a_table_without_memwal_ends_with_2(tmp_path):
    lance.write_dataset(people(1), str(tmp_path / "plain"))
    result = run("maintain", str(tmp_path / "plain"))

    assert isinstance(result.exception, InvalidRequestError)


def test_job_writes_its_report_and_ends_with_the_outcome(uri, tmp_path):
    target = tmp_path / "report.json"
    document = json.dumps({"uri": uri, "report": str(target), "ok_when_nothing": True})
    command = [sys.executable, "jobs/maintain.py", document]

    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert json.loads(target.read_text())["outcome"] == "nothing_to_do"
    assert {step["job"] for step in json.loads(target.read_text())["steps"]} == {
        "flush",
        "quality",
        "merge",
        "verify",
        "catchup",
        "compact",
        "snapshot",
        "gc",
    }
