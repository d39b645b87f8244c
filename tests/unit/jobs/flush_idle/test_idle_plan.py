"""Whose regions are flushed: the truth table of the signs of life."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from memwal_core.ids import RegionId
from memwal_core.jobs.flush_idle.plan import IdleBounds, IdleReason, RegionSigns, judge_region, plan_idle
from memwal_core.settings import FlushSettings, Settings, WriterSettings

NOW = datetime(2026, 6, 1, tzinfo=UTC)
REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
BOUNDS = IdleBounds(min_age_s=600, own_s=3600, foreign_s=86_400, max_wait_s=None)
FENCE = IdleBounds(min_age_s=0, own_s=3600, foreign_s=86_400, max_wait_s=None, fence=True)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def signs(waiting: float | None, silent: float | None = None, **others) -> RegionSigns:
    return RegionSigns(
        REGION,
        writer_epoch=3,
        waiting_since=None if waiting is None else ago(waiting),
        last_sign=None if silent is None else ago(silent),
        **others,
    )


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (signs(None), IdleReason.FLUSHED),
        (signs(599, released=True), IdleReason.YOUNG),
        (signs(600, released=True), IdleReason.RELEASED),
        (signs(9000, 3599, is_ours=True), IdleReason.ALIVE),
        (signs(9000, 3600, is_ours=True), IdleReason.SILENT),
        (signs(90_000, 3600), IdleReason.ALIVE),
        (signs(90_000, 86_399), IdleReason.ALIVE),
        (signs(90_000, 86_400), IdleReason.SILENT),
        (signs(90_000, None), IdleReason.ALIVE),
        (RegionSigns(REGION, problem="its manifest is damaged"), IdleReason.DAMAGED),
    ],
)
def test_only_a_region_without_a_living_writer_is_flushed(seen, reason):
    verdict = judge_region(seen, NOW, BOUNDS)

    assert verdict.reason is reason
    assert verdict.reason.flushes == (reason in {IdleReason.RELEASED, IdleReason.SILENT})


def test_rows_that_a_wrong_clock_dated_wait_for_no_age():
    """They were too young for as long as the clock had been ahead, even where the writer had given the region back."""
    assert judge_region(signs(-(10**7), released=True), NOW, BOUNDS).reason is IdleReason.RELEASED
    assert judge_region(signs(-30, released=True), NOW, BOUNDS).reason is IdleReason.YOUNG


def test_sign_of_life_that_lies_ahead_says_so_and_what_to_do():
    """The evidence was a silence of a negative time."""
    verdict = judge_region(signs(-(10**7), -(10**7), is_ours=True), NOW, BOUNDS)

    assert verdict.reason is IdleReason.ALIVE
    assert "lies 10000000 s ahead" in verdict.evidence
    assert "memwal flush --fence" in verdict.evidence


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (signs(None), IdleReason.FLUSHED),
        (signs(1, 1, is_ours=True), IdleReason.REQUESTED),
        (signs(1, 1), IdleReason.REQUESTED),
        (RegionSigns(REGION, problem="its manifest is damaged"), IdleReason.DAMAGED),
    ],
)
def test_a_request_to_fence_flushes_every_region_with_rows(seen, reason):
    assert judge_region(seen, NOW, FENCE).reason is reason


def test_another_programs_writer_never_counts_as_dead_where_that_is_chosen():
    bounds = IdleBounds(min_age_s=600, own_s=3600, foreign_s=None, max_wait_s=None)

    assert judge_region(signs(10**8, 10**8), NOW, bounds).reason is IdleReason.ALIVE
    assert judge_region(signs(10**8, 10**8, is_ours=True), NOW, bounds).reason is IdleReason.SILENT


def test_rows_that_waited_too_long_are_flushed_only_if_that_is_chosen():
    bounds = IdleBounds(min_age_s=600, own_s=3600, foreign_s=None, max_wait_s=7200)

    assert judge_region(signs(7199, 1), NOW, bounds).reason is IdleReason.ALIVE
    assert judge_region(signs(7200, 1), NOW, bounds).reason is IdleReason.OVERDUE
    assert judge_region(signs(7200, 1), NOW, BOUNDS).reason is IdleReason.ALIVE


def test_default_times_exceed_the_age_at_which_a_living_writer_flushes_and_a_week_of_another_program():
    bounds = IdleBounds.of(Settings(), due_only=True, fence=False)

    assert (bounds.min_age_s, bounds.own_s, bounds.foreign_s, bounds.max_wait_s) == (600, 3600, 7 * 86_400, None)
    slow = Settings(writer=WriterSettings(max_memtable_age_s=7200), flush=FlushSettings(quiet_s=60))
    assert IdleBounds.of(slow, due_only=True, fence=False).own_s == 14_400


def test_by_hand_young_rows_of_a_released_region_are_flushed():
    bounds = IdleBounds.of(Settings(), due_only=False, fence=False)

    assert judge_region(signs(1, released=True), NOW, bounds).reason is IdleReason.RELEASED


def test_plan_counts_verdicts_and_shows_only_regions_with_rows():
    plan = plan_idle("t", [signs(None), signs(9000, 3600, is_ours=True)], NOW, BOUNDS)

    assert plan.counts() == {IdleReason.SILENT: 1, IdleReason.FLUSHED: 1}
    assert len(plan.due) == 1
    assert len(plan.to_dict()["regions"]) == 1
