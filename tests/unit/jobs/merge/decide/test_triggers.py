"""When a region is due: generations or bytes or age, each alone sufficient."""

from __future__ import annotations

import pytest

from memwal_core.jobs.merge.decide.triggers import SearchWork, Trigger, WaitingGenerations, judge_triggers
from memwal_core.settings import MIB, MergeTriggerSettings

SETTINGS = MergeTriggerSettings()


@pytest.mark.parametrize(
    ("waiting", "fires"),
    [
        (WaitingGenerations(8, 1, 1.0), Trigger.GENERATIONS),
        (WaitingGenerations(1, 256 * MIB, 1.0), Trigger.BYTES),
        (WaitingGenerations(1, 1, 600.0), Trigger.AGE),
    ],
)
def test_each_trigger_alone_is_enough(waiting, fires):
    """A quiet region whose count never reaches its threshold must be merged all the same (bug 36)."""
    verdict = judge_triggers(waiting, SETTINGS)
    assert verdict.due
    assert [each.trigger for each in verdict.distances if each.fires] == [fires]
    assert fires.value in verdict.reason


def test_region_just_below_every_threshold_waits_and_tells_its_distances():
    verdict = judge_triggers(WaitingGenerations(7, 256 * MIB - 1, 599.0), SETTINGS)
    assert not verdict.due
    assert [each.missing for each in verdict.distances] == [1, 1, 1]
    assert verdict.reason.startswith("not due yet")
    assert verdict.to_dict()["triggers"][0] == {
        "trigger": "generations",
        "value": 7,
        "threshold": 8,
        "fires": False,
        "missing": 1,
    }


def test_nothing_that_waits_is_never_due():
    assert not judge_triggers(WaitingGenerations(0, 0, None), MergeTriggerSettings(generations=1)).due


def test_unknown_age_leaves_the_other_triggers():
    assert judge_triggers(WaitingGenerations(8, 1, None), SETTINGS).due
    assert not judge_triggers(WaitingGenerations(1, 1, None), SETTINGS).due


GIB = 1024 * MIB


def test_many_generations_wait_while_the_search_is_not_worth_them():
    waiting = WaitingGenerations(8, 10 * MIB, 30.0, SearchWork(GIB, regions=1))
    verdict = judge_triggers(waiting, SETTINGS)
    assert not verdict.due
    assert "102 bytes" in verdict.reason
    assert "1024.0 MiB for 1 region)" in verdict.reason
    assert "600 s old (now 30 s)" in verdict.reason


@pytest.mark.parametrize(
    "waiting",
    [
        WaitingGenerations(8, 10 * MIB, 30.0, SearchWork(GIB, regions=20)),
        WaitingGenerations(8, 128 * MIB, 30.0, SearchWork(GIB, regions=1)),
        WaitingGenerations(8, 1, 30.0, SearchWork(16 * MIB, regions=1)),
        WaitingGenerations(8, 1, 600.0, SearchWork(GIB, regions=1)),
        WaitingGenerations(8, 256 * MIB, 30.0, SearchWork(1024 * GIB, regions=1)),
        WaitingGenerations(8, 1, None, SearchWork(GIB, regions=1)),
    ],
    ids=["shared by regions", "worth it", "cheap", "old", "large", "of unknown age"],
)
def test_a_dear_search_keeps_no_region_waiting_for_ever(waiting):
    assert judge_triggers(waiting, SETTINGS).due


@pytest.mark.req("LEASE-33")
def test_schedule_looks_every_thirty_seconds_by_default_and_as_often_as_set():
    assert SETTINGS.interval_s == 30
    assert MergeTriggerSettings(interval_s=5).interval_s == 5
