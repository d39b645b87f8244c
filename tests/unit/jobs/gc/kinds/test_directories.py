"""Unrecorded directories: drained ones after the grace period, orphans after proof."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from memwal_core.jobs.gc.items import Action, FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.state import GcRegionState
from memwal_core.settings import DAY_S, GcSettings
from testkit.tables.garbage import NOW, OLD_S, base, directory, policy, region, table


def planned(state: GcRegionState, *, merged: int = 0, settings: GcSettings | None = None, **others) -> list[Item]:
    found = plan_gc(table(base(merged, **others), state), policy(settings)).items
    return [item for item in found if item.kind is Kind.DIRECTORY]


def drained(generation: int, since_s: float) -> GcRegionState:
    state = region([], current=generation + 1, directories=[directory(generation)])
    return replace(state, drained={directory(generation).name: NOW - timedelta(seconds=since_s)})


@pytest.mark.req("GC-23")
@pytest.mark.parametrize(("since_s", "rule"), [(599, Gate.GRACE), (600, FreeingRule.DRAINED), (-5, Gate.GRACE)])
def test_drained_directory_goes_when_its_grace_period_is_over(since_s, rule):
    (item,) = planned(drained(1, since_s), merged=1)

    assert item.reason is rule
    assert (item.action is Action.DELETE) == (rule is FreeingRule.DRAINED)


@pytest.mark.req("GC-20")
def test_directory_that_somebody_drained_too_early_stays():
    (item,) = planned(drained(1, OLD_S), merged=1, index_names=["vec"])

    assert item.reason is Gate.INDEX_BEHIND


@pytest.mark.req("GC-14", "GC-16")
@pytest.mark.parametrize(("age_s", "rule"), [(3 * DAY_S - 1, Gate.YOUNG), (3 * DAY_S, FreeingRule.ORPHAN)])
def test_directory_of_a_failed_flush_goes_when_it_is_old(age_s, rule):
    failed = replace(directory(1, age_s=age_s), name="deadbeef_gen_1")

    (item,) = planned(region([1], directories=[directory(1), failed]))

    assert (item.path.rpartition("/")[2], item.reason) == ("deadbeef_gen_1", rule)


@pytest.mark.req("GC-11", "GC-16")
def test_directory_of_the_current_generation_stays_while_its_writer_may_record_it():
    state = region([1], directories=[directory(1), directory(2)], epoch=4)
    since = replace(state, epochs=((NOW - timedelta(seconds=2 * OLD_S), 4),))

    (item,) = planned(since)

    assert item.reason is Gate.MAY_BE_RECORDED


@pytest.mark.req("GC-16")
def test_directory_of_the_current_generation_goes_once_its_writer_is_fenced():
    state = region([1], directories=[directory(1), directory(2)], epoch=5)
    claimed_later = ((NOW - timedelta(seconds=2 * OLD_S), 4), (NOW - timedelta(seconds=OLD_S / 2), 5))

    (item,) = planned(replace(state, epochs=claimed_later))

    assert item.reason is FreeingRule.ORPHAN


def test_claim_from_before_the_directory_proves_nothing():
    state = region([1], directories=[directory(1), directory(2)], epoch=5)
    claimed_before = ((NOW - timedelta(seconds=3 * OLD_S), 4), (NOW - timedelta(seconds=2 * OLD_S), 5))

    (item,) = planned(replace(state, epochs=claimed_before))

    assert item.reason is Gate.MAY_BE_RECORDED


@pytest.mark.req("GC-15")
def test_recorded_directories_are_no_garbage():
    assert planned(region([1, 2])) == []
