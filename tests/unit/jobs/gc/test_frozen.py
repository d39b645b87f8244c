"""States in which nothing is collected, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwal_core.base_table import RetainedVersion
from memwal_core.jobs.gc.items import Gate
from memwal_core.jobs.gc.plan import plan_gc
from memwal_core.jobs.gc.state import BaseState, GcState
from testkit.tables.garbage import OLD_S, REGION, base, directory, policy, region, stored, table, versions

BUSY = replace(
    region([1, 2], replay=2, wal=dict.fromkeys(range(1, 4), OLD_S)),
    versions=versions(dict.fromkeys(range(1, 60), OLD_S)),
    temporaries=(stored("x.tmp.1"),),
)


def frozen(state: GcState) -> str:
    """Return why nothing is collected, having seen that nothing is."""
    plan = plan_gc(state, policy())
    assert plan.items
    assert {item.reason for item in plan.items} == {Gate.FROZEN}
    assert plan.free == ()
    return plan.freezes.table or plan.freezes.regions[REGION]


def test_same_state_unfrozen_has_garbage():
    assert plan_gc(table(base(2), BUSY), policy()).free


def test_index_gone_while_regions_exist_freezes_the_table():
    assert "no MemWAL index but regions exist" in frozen(table(BaseState(5, 10, None), BUSY))


def test_legacy_index_freezes_the_table():
    assert "early release" in frozen(table(BaseState(5, 10, None, problem="an index of an early release"), BUSY))


def test_legacy_retained_version_freezes_the_table():
    assert "version 3 has" in frozen(table(base(2, retained=[RetainedVersion(3, legacy=True)]), BUSY))


def test_progress_of_a_branch_may_be_ahead():
    state = base(1, retained=[RetainedVersion(9, branch="trial", merged={REGION: 2})])

    assert not plan_gc(table(state, BUSY), policy()).freezes


def test_progress_ahead_of_the_region_freezes_it():
    assert "generation 3 counts as merged" in frozen(table(base(3), BUSY))


@pytest.mark.parametrize("recorded", [[3], [2, 4], []])
def test_generation_hole_freezes_the_region(recorded):
    state = replace(BUSY, manifest=region(recorded, current=5).manifest, directories=tuple(map(directory, recorded)))

    assert "is neither merged (progress 1) nor recorded" in frozen(table(base(1), state))


def test_unmerged_generation_without_directory_freezes_the_region():
    assert "generation 2 is not merged" in frozen(table(base(1), replace(BUSY, directories=(directory(1),))))


def test_two_codecs_in_one_wal_freeze_the_region():
    assert "two codecs" in frozen(table(base(2), replace(BUSY, wal_suffixes=frozenset({".lance", ".arrow"}))))


def test_unreadable_manifest_freezes_the_region_and_not_the_others():
    other = replace(BUSY, region_id=type(REGION)(int=7))

    plan = plan_gc(table(base(2), replace(BUSY, manifest=None, problem="damaged"), other), policy())

    assert plan.freezes.regions == {REGION: "damaged"}
    assert {item.region_id for item in plan.free} == {other.region_id}
