"""Dividing a single-commit merge into units of work."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table.commit.row_changes import BaseFragment, balanced
from memwal_core.flushed.read import MergeTarget
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.strategy import StrategyChoice
from memwal_core.jobs.merge.plan import MergePlan, RegionPlan, SurveyedGeneration, Verdict
from memwal_core.jobs.merge.read.winners import region_tasks
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.merge.work.units import (
    KeyPart,
    SearchUnit,
    UnitBounds,
    WriteUnit,
    WrittenUnit,
    search_units,
    write_units,
)
from memwal_core.jobs.sharing.place import Workplace
from memwal_core.settings import MIB
from testkit.pickling_executors import pickled

TARGET = MergeTarget(
    pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())]), {"id": 0, "v": 1}, ("id",)
)


def region_id(number: int) -> RegionId:
    return RegionId(uuid.UUID(int=number))


def plan_of(sizes: list[tuple[int, bool]]) -> MergePlan:
    regions = []
    for number, (size, lacks) in enumerate(sizes):
        taken = SurveyedGeneration(1, f"/g{number}", size, 10, missing=("v",) if lacks else ())
        regions.append(RegionPlan(region_id(number), 0, (taken,), 0, 0, Verdict.COMPLETE))
    return MergePlan("/t", 7, tuple(regions), Workplace(False, "test"), StrategyChoice(False, "test"))


def units_of(plan: MergePlan, unit_bytes: int, executors: int = 1) -> list[WriteUnit]:
    tasks = region_tasks(plan, TARGET)
    return write_units(plan, tasks, UnitBounds(unit_bytes, 4096, executors))


@given(
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 200),
    st.integers(1, 5),
)
@settings(derandomize=True, deadline=None)
def test_every_region_is_in_one_unit_that_is_bounded_and_of_one_kind(sizes, unit_bytes, executors):
    plan = plan_of(sizes)

    units = units_of(plan, unit_bytes, executors)

    assert sorted(task.region_id for unit in units for task in unit.tasks) == [
        region.region_id for region in plan.regions
    ]
    assert [unit.number for unit in units] == list(range(len(units)))
    bytes_of = {region_id(number): size for number, (size, _) in enumerate(sizes)}
    for unit in units:
        assert len({bool(task.missing) for task in unit.tasks}) == 1
        assert len(unit.tasks) == 1 or sum(bytes_of[task.region_id] for task in unit.tasks) <= unit_bytes


def test_several_executors_get_smaller_units():
    plan = plan_of([(10 * MIB, False)] * 16)
    assert len(units_of(plan, 1_000 * MIB)) == 1
    assert len(units_of(plan, 1_000 * MIB, executors=4)) == 8


def test_little_work_is_not_divided_between_executors():
    plan = plan_of([(MIB // 8, False)] * 16)
    assert len(units_of(plan, 1_000 * MIB, executors=4)) == 1
    assert len(units_of(plan, MIB, executors=4)) == 2


@given(st.lists(st.integers(0, 1_000), max_size=40), st.integers(1, 8))
@settings(derandomize=True, deadline=None)
def test_fragments_are_shared_out_once_and_evenly(rows, groups):
    fragments = [BaseFragment(number, "", count, count) for number, count in enumerate(rows)]

    shared = list(balanced(fragments, groups))

    assert sorted(each.fragment_id for group in shared for each in group) == list(range(len(rows)))
    loads = [sum(each.physical_rows for each in group) for group in shared]
    if len(loads) == groups:
        assert max(loads) - min(loads) <= max(rows)


def common(keys: tuple[KeyPart, ...] = ()) -> SearchUnit:
    return SearchUnit(7, (), keys, ("id",), 1024, "attempt")


def test_empty_base_still_has_a_unit_that_checks_the_keys():
    assert [unit.checks_keys for unit in search_units([], common(), 4, checks_keys=True)] == [True]
    assert search_units([], common(), 4, checks_keys=False) == []


def test_exactly_one_unit_checks_the_keys():
    fragments = [BaseFragment(number, "", 1, 1) for number in range(9)]
    units = search_units(fragments, common(), 2, checks_keys=True)
    assert len(units) == 4
    assert [unit.checks_keys for unit in units] == [True, False, False, False]


@pytest.mark.parametrize("lacks", [True, False])
def test_units_reach_another_process_whole(lacks):
    (unit,) = units_of(plan_of([(5, lacks)]), 10)
    assert pickled(unit) == unit
    assert unit.inherits is lacks
    part = KeyPart("_mem_wal/_staging/merge/a/b.arrow", None, 3, 77)
    written = WrittenUnit(3, 7, (MergeShare(region_id(1), 0, 2, 9, 5, 1),), ('{"physical_rows": 5}',), part)
    assert pickled(written) == written
    assert written.is_complete
    assert (written.upserts, written.touched) == (5, 6)
    search = SearchUnit(7, (BaseFragment(1, "{}", 5, 4),), (part,), ("id",), 1, "a", checks_keys=True)
    assert pickled(search) == search


def test_unit_with_a_lost_row_is_not_complete():
    part = KeyPart(None, None, 0, 0)
    assert not WrittenUnit(
        0, 1, (MergeShare(region_id(1), 0, 1, 2, 2, 0),), ('{"physical_rows": 1}',), part
    ).is_complete
