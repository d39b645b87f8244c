"""The plan of a cycle: order, what each step may change, why a step is left out, what ends it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.coordination.ledger import RunVerdict
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    FrozenError,
    InvalidRequestError,
    UnavailableError,
)
from memwal_core.jobs.catalog import parse_request
from memwal_core.jobs.cycle.plan import MaintainRequest, StepEnd, StepName, end_of_cycle, plan_cycle
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityGate
from memwal_core.settings import Settings

DAG = Path(__file__).resolve().parents[4] / "dags" / "memwal_maintain.py"
SETTINGS = Settings()
FREE, PAUSED = RunVerdict(True, "it never ran"), RunVerdict(False, "3 failures in a row")


@pytest.mark.req("LEASE-34")
def test_steps_are_in_the_order_in_which_jobs_need_each_other():
    plan = plan_cycle(MaintainRequest(), SETTINGS)

    assert [(step.name.value, step.job) for step in plan.steps] == [
        ("flush", "flush"),
        ("audit", "quality"),
        ("merge", "merge"),
        ("verify", "verify"),
        ("catch_up", "catchup"),
        ("check", "quality"),
        ("compact", "compact"),
        ("catch_up_again", "catchup"),
        ("snapshot", "snapshot"),
        ("collect_garbage", "gc"),
    ]


def test_dag_has_the_steps_of_the_plan_and_the_one_that_each_follows():
    """DAG files are parsed where the library is not installed, so they repeat names, and nothing else."""
    [steps] = [
        node.value
        for node in ast.parse(DAG.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STEPS"
    ]
    in_dag = [row[:3] for row in ast.literal_eval(steps)]

    planned = [(step.name.value, step.job, step.follows) for step in plan_cycle(MaintainRequest(), SETTINGS).steps]

    assert in_dag == planned


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("delete", [True, False])
@pytest.mark.parametrize("remove_versions", [True, False])
def test_steps_change_only_what_was_asked_for(dry_run, delete, remove_versions):
    plan = plan_cycle(MaintainRequest(dry_run=dry_run, delete=delete, remove_versions=remove_versions), SETTINGS)

    acting = {step.name for step in plan.steps if not step.request.dry_run}
    always = set() if dry_run else set(StepName) - {StepName.COLLECT_GARBAGE}
    assert acting == always | ({StepName.COLLECT_GARBAGE} if delete and not dry_run else set())
    removing = [step.name for step in plan.steps if getattr(step.request, "remove_versions", False)]
    assert removing == [StepName.COMPACT] * remove_versions


@pytest.mark.parametrize(
    ("compacted", "runs"),
    [
        (None, False),
        (JobOutcome.NOTHING_TO_DO, False),
        (JobOutcome.PLANNED, False),
        (JobOutcome.DONE, True),
        (JobOutcome.CONFLICT, True),
    ],
)
def test_second_catch_up_runs_only_if_compaction_may_have_changed_something(compacted, runs):
    plan = plan_cycle(MaintainRequest(), SETTINGS)
    before = {} if compacted is None else {StepName.COMPACT: compacted}

    left_out = plan.left_out(plan.step("catch_up_again"), before, FREE)

    assert (left_out is None) is runs
    assert left_out is None or (left_out.end, left_out.outcome) == (StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("request_", "runs"), [(MaintainRequest(), False), (MaintainRequest(ignore_pauses=True), True)]
)
def test_job_that_pauses_is_left_out_unless_pauses_are_ignored(request_, runs, dry_run):
    request_ = request_.model_copy(update={"dry_run": dry_run})
    plan = plan_cycle(request_, SETTINGS)

    left_out = plan.left_out(plan.step("merge"), {}, PAUSED)

    assert (left_out is None) is runs
    assert left_out is None or (left_out.end, left_out.outcome, left_out.why) == (
        StepEnd.PAUSED,
        JobOutcome.CONFLICT,
        "3 failures in a row",
    )


@pytest.mark.parametrize(("since_s", "runs"), [(None, True), (599, False), (600, True), (-5, True)])
def test_regions_are_looked_at_no_more_often_than_their_rows_can_be_due(since_s, runs):
    plan = plan_cycle(MaintainRequest(), SETTINGS)
    past = RunVerdict(True, "the last run succeeded", since_success_s=since_s)

    left_out = plan.left_out(plan.step("flush"), {}, past)

    assert (left_out is None) is runs
    assert left_out is None or (left_out.end, left_out.outcome) == (StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO)
    assert plan.left_out(plan.step("merge"), {}, past) is None
    planned = plan_cycle(MaintainRequest(dry_run=True), SETTINGS)
    assert (planned.left_out(planned.step("flush"), {}, past) is None) is runs  # as a run does


def test_nothing_runs_after_the_end_of_a_cycle():
    plan = plan_cycle(MaintainRequest(ignore_pauses=True, checks=QualityGate.MANDATORY), SETTINGS)

    for step in plan.steps:
        left_out = plan.left_out(step, {StepName.COMPACT: JobOutcome.DONE}, FREE, "merge needs somebody")
        assert left_out is not None
        assert (left_out.end, left_out.why) == (StepEnd.NOT_REACHED, "merge needs somebody")


@pytest.mark.parametrize(
    ("ended", "ends"),
    [
        *[(outcome, outcome is JobOutcome.BLOCKED) for outcome in JobOutcome],
        (ConflictError("others were first", remedy="again"), False),
        (LeaseHeldError("somebody merges", remedy="later"), False),
        (CommitUnknownError("no answer", remedy="look"), False),
        (FencedError("lost", remedy="stop"), True),
        (CorruptionError("lost", remedy="stop"), True),
        (UnavailableError("no storage", remedy="again"), True),
    ],
    ids=lambda value: getattr(value, "value", type(value).__name__),
)
def test_cycle_ends_where_a_person_is_needed_and_where_storage_does_not_answer(ended, ends):
    step = plan_cycle(MaintainRequest(), SETTINGS).step("compact")
    assert bool(end_of_cycle(step, ended)) is ends


@pytest.mark.parametrize("checks", QualityGate)
def test_table_is_verified_or_checked_and_never_neither(checks):
    """O1: the gate stands before versions are removed, and one of its steps counts all keys, whatever is asked for."""
    plan = plan_cycle(MaintainRequest(checks=checks), SETTINGS)
    names = [step.name for step in plan.steps if not step.off]

    gate = {StepName.AUDIT, StepName.CHECK} if checks is not QualityGate.OFF else {StepName.VERIFY}
    assert gate == set(names) & {StepName.AUDIT, StepName.VERIFY, StepName.CHECK}
    assert max(map(names.index, gate)) < names.index(StepName.COMPACT)
    assert all(plan.left_out(step, {}, FREE) is not None for step in plan.steps if step.off)


@pytest.mark.parametrize(
    ("checks", "step", "ended", "ends"),
    [
        (QualityGate.MANDATORY, "audit", JobOutcome.BLOCKED, False),  # what it held back is left out of the merge
        (QualityGate.MANDATORY, "audit", UnavailableError("no Spark", remedy="again"), True),
        (QualityGate.MANDATORY, "check", JobOutcome.BLOCKED, True),
        (QualityGate.ADVISORY, "audit", InvalidRequestError("no suite", remedy="name one"), False),
        (QualityGate.ADVISORY, "check", UnavailableError("no Spark", remedy="again"), False),
        (QualityGate.ADVISORY, "check", FrozenError("frozen", remedy="thaw"), True),
    ],
)
def test_gate_holds_what_comes_after_it_only_where_it_is_mandatory(checks, step, ended, ends):
    plan = plan_cycle(MaintainRequest(checks=checks), SETTINGS)

    assert bool(end_of_cycle(plan.step(step), ended)) is ends


@pytest.mark.parametrize("checks", QualityGate)
def test_merge_takes_only_what_was_audited_where_the_gate_is_mandatory(checks):
    merge = plan_cycle(MaintainRequest(checks=checks, suites=("names.json",)), SETTINGS).step("merge").request

    expected = {"audited_only": True, "suites": ["names.json"]} if checks is QualityGate.MANDATORY else {}
    assert merge.to_json() == {"leave_held": True, **expected}
    assert parse_request("merge", merge.to_json()) == merge


def test_step_that_the_cycle_does_not_have_is_refused():
    with pytest.raises(InvalidRequestError, match="no such step"):
        plan_cycle(MaintainRequest(), SETTINGS).step("catchup")


def test_plan_is_json():
    document = plan_cycle(MaintainRequest(), SETTINGS).to_dict()
    assert document["steps"][7] == {
        "step": "catch_up_again",
        "job": "catchup",
        "follows": "compact",
        "request": {},
    }
    planned = plan_cycle(MaintainRequest(dry_run=True, remove_versions=True), SETTINGS).to_dict()["steps"]
    assert planned[6]["request"] == {"dry_run": True, "remove_versions": True}
    assert [parse_request(step["job"], step["request"]) for step in planned] == [
        step.request for step in plan_cycle(MaintainRequest(dry_run=True, remove_versions=True), SETTINGS).steps
    ]
