"""Dividing a pending merge into jobs: everything once, regions whole, jobs bounded."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.batches import MAX_BATCH_REGIONS, batch_regions
from memwal_core.jobs.merge.plan import MergePlan, MergeSurvey, SurveyedGeneration, SurveyedRegion, plan_merge
from memwal_core.settings import MergeSettings


def _region(number: int) -> RegionId:
    return RegionId(uuid.UUID(int=number))


def _plan(generations: dict[int, list[int]], *, merged: int = 0, max_bytes: int = 100) -> MergePlan:
    """Plan a pass over regions, given the sizes of their generations above ``merged``."""
    surveyed = [
        SurveyedRegion(
            region_id=_region(number),
            manifest_version=1,
            current_generation=merged + len(sizes) + 1,
            merged=merged,
            generations=tuple(
                SurveyedGeneration(generation, f"/g{generation}", size, 1)
                for generation, size in enumerate(sizes, start=merged + 1)
            ),
        )
        for number, sizes in generations.items()
    ]
    return plan_merge(MergeSurvey("/t", 7, tuple(surveyed)), MergeSettings(max_bytes=max_bytes))


def test_table_with_nothing_to_merge_needs_no_job() -> None:
    assert batch_regions(_plan({1: [], 2: []}), 100) == ()


def test_regions_that_fit_together_make_one_job() -> None:
    [batch] = batch_regions(_plan({1: [10, 20], 2: [30], 3: []}, merged=4), 100)

    assert batch.through == {_region(1): 6, _region(2): 5}
    assert (batch.generations, batch.size_bytes) == (3, 60)


def test_generations_beyond_the_first_pass_count_as_well() -> None:
    [batch] = batch_regions(_plan({1: [60, 60, 60]}, max_bytes=100), 100)

    assert batch.through == {_region(1): 3}
    assert batch.size_bytes == 180


@pytest.mark.req("MRG-26")
def test_region_that_lags_most_comes_first_and_is_never_divided() -> None:
    batches = batch_regions(_plan({1: [30], 2: [90, 90], 3: [60], 4: [40]}), 100)

    assert [dict(batch.through) for batch in batches] == [
        {_region(2): 2},
        {_region(3): 1, _region(4): 1},
        {_region(1): 1},
    ]


def test_job_takes_no_more_regions_than_a_command_line_holds() -> None:
    many = {number: [1] for number in range(MAX_BATCH_REGIONS + 1)}

    assert [len(batch.through) for batch in batch_regions(_plan(many), 10**9)] == [MAX_BATCH_REGIONS, 1]


@given(
    sizes=st.dictionaries(st.integers(0, 50), st.lists(st.integers(1, 200), max_size=5), max_size=12),
    max_bytes=st.integers(1, 500),
)
@settings(derandomize=True, deadline=None)
def test_each_region_is_in_one_job_and_jobs_of_several_regions_are_bounded(
    sizes: dict[int, list[int]], max_bytes: int
) -> None:
    batches = batch_regions(_plan(sizes, max_bytes=max_bytes), max_bytes)

    through = [(region, generation) for batch in batches for region, generation in batch.through.items()]
    assert sorted(through) == sorted((_region(number), len(found)) for number, found in sizes.items() if found)
    assert sum(batch.size_bytes for batch in batches) == sum(map(sum, sizes.values()))
    assert all(batch.size_bytes <= max_bytes for batch in batches if len(batch.through) > 1)
