"""Each arm of the maintenance comparisons does its work, and notices when it was not done."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.comparisons.maintenance import GC_PLANS, MERGE_MEMORY, SNAPSHOT_REQUESTS, SNAPSHOTS
from bench.harness import Arm, Case, Comparison

SMALL = [(comparison, arm) for comparison in (SNAPSHOTS, SNAPSHOT_REQUESTS, GC_PLANS) for arm in comparison.arms]


def small_case(comparison: Comparison) -> Case:
    return comparison.cases(False)[0]


@pytest.mark.parametrize(("comparison", "arm"), SMALL, ids=lambda each: each.name)
def test_arm_does_its_work_and_notices_when_it_was_not_done(comparison: Comparison, arm: Arm, tmp_path: Path) -> None:
    case = small_case(comparison)
    (tmp_path / "done").mkdir()
    (tmp_path / "skipped").mkdir()

    with arm.prepare(case, tmp_path / "done") as work:
        work()
    if arm.name == "memwal" and comparison is not GC_PLANS:
        return  # The table is shared by all trials: its snapshot is published now.
    with pytest.raises((AssertionError, IndexError)), arm.prepare(case, tmp_path / "skipped"):
        pass


def test_requests_of_a_build_are_a_few_per_region(tmp_path: Path) -> None:
    case = SNAPSHOT_REQUESTS.cases(False)[1]
    gets, build = SNAPSHOT_REQUESTS.arms
    samples = []
    for number, arm in enumerate((gets, build, build)):
        (tmp_path / str(number)).mkdir()
        with arm.prepare(case, tmp_path / str(number)) as work:
            samples.append(work() or 0)

    only_gets, first, later = samples
    assert only_gets == case.operations
    assert case.operations < later < 6 * case.operations
    # The first job that ever runs on a table has no record to compare it with, and reads every region once more.
    assert later < first < 9 * case.operations


@pytest.mark.slow
def test_memory_of_both_ways_to_merge_is_that_of_a_process(tmp_path: Path) -> None:
    case = Case("one generation", 1, 1)
    for arm in MERGE_MEMORY.arms:
        (tmp_path / arm.name).mkdir()
        with arm.prepare(case, tmp_path / arm.name) as work:
            peak_mib = work()
        assert peak_mib is not None
        assert 50 < peak_mib < 2000
