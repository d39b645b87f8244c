"""The rules that every change of the MemWAL index keeps."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.rules import (
    caught_up_generation,
    check_any_commit,
    check_commit_without_rows,
    is_inline,
)
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec
from memwal_core.settings import Settings

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))
SPEC = RegionSpec(1, (RegionField("bucket", (0,), "bucket"),))
OLD = MemWalIndexDetails(
    region_specs=(SPEC,), merged_generations={A: 5, B: 2}, index_catchup={"vec": {A: 4}, "text": {A: 5, B: 2}}
)


@pytest.mark.req("IDX-11", "IDX-12", "IDX-13")
@pytest.mark.parametrize(
    ("regions", "threshold", "inline"),
    [(0, 100, True), (1, 100, True), (99, 100, True), (100, 100, True), (101, 100, False), (3, 3, True), (4, 3, False)],
)
def test_snapshot_is_inline_up_to_the_threshold(regions: int, threshold: int, inline: bool) -> None:
    assert is_inline(regions, threshold=threshold) is inline


@pytest.mark.req("IDX-13")
def test_default_threshold_is_one_hundred_regions() -> None:
    assert Settings().index.inline_snapshot_threshold == 100


@pytest.mark.req("IDX-31", "IDX-32", "CAT-10")
def test_index_or_region_without_catchup_entry_has_not_caught_up() -> None:
    """Bug class 20: a missing entry read as caught up deletes generations that no index has seen."""
    assert caught_up_generation(OLD, ["absent"], A) == 0
    assert caught_up_generation(OLD, ["vec"], B) == 0
    assert caught_up_generation(OLD, ["vec", "absent"], A) == 0


@pytest.mark.req("IDX-33")
def test_caught_up_generation_is_the_slowest_indexs() -> None:
    assert caught_up_generation(OLD, ["vec"], A) == 4
    assert caught_up_generation(OLD, ["text"], A) == 5
    assert caught_up_generation(OLD, ["vec", "text"], A) == 4


def test_without_indexes_only_merging_counts() -> None:
    assert caught_up_generation(OLD, [], A) == 5
    assert caught_up_generation(OLD, [], RegionId(uuid.UUID(int=7))) == 0


def test_catchup_beyond_merge_progress_counts_only_what_is_merged() -> None:
    ahead = replace(OLD, index_catchup={"vec": {A: 9}})

    assert caught_up_generation(ahead, ["vec"], A) == 5


@pytest.mark.req("IDX-28", "MRG-20")
@pytest.mark.parametrize("merged", [{A: 4, B: 2}, {A: 5}, {}])
def test_merge_progress_that_goes_back_is_refused(merged: dict[RegionId, int]) -> None:
    with pytest.raises(InvalidRequestError, match="cannot go back") as caught:
        check_any_commit(OLD, replace(OLD, merged_generations=merged, index_catchup={}))

    assert caught.value.facts["proposed"] < caught.value.facts["recorded"]


def test_merge_progress_that_grows_with_rows_is_accepted() -> None:
    check_any_commit(OLD, replace(OLD, merged_generations={A: 7, B: 2, RegionId(uuid.UUID(int=7)): 1}))


@pytest.mark.req("IDX-27", "IDX-29")
@pytest.mark.parametrize("merged", [{A: 6, B: 2}, {A: 4, B: 2}, {A: 5, B: 2, RegionId(uuid.UUID(int=7)): 1}])
def test_merge_progress_changed_without_rows_is_refused(merged: dict[RegionId, int]) -> None:
    with pytest.raises(InvalidRequestError, match="only in the commit that brings"):
        check_commit_without_rows(OLD, replace(OLD, merged_generations=merged))


@pytest.mark.req("CAT-08")
def test_catchup_beyond_merge_progress_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not merged"):
        check_commit_without_rows(OLD, replace(OLD, index_catchup={**OLD.index_catchup, "vec": {A: 6}}))


@pytest.mark.req("CAT-08")
@pytest.mark.parametrize("progress", [{A: 3}, {B: 2}])
def test_catchup_that_goes_back_is_refused(progress: dict[RegionId, int]) -> None:
    with pytest.raises(InvalidRequestError, match="cannot go back"):
        check_commit_without_rows(OLD, replace(OLD, index_catchup={"vec": progress}))


def test_catchup_entry_of_a_dropped_index_may_go() -> None:
    check_commit_without_rows(OLD, replace(OLD, index_catchup={"text": {A: 5, B: 2}}))


@pytest.mark.parametrize(
    "specs",
    [
        (),
        (replace(SPEC, fields=()),),
        (SPEC, SPEC),
        (SPEC, RegionSpec(0, ())),
        (SPEC, RegionSpec(2, (RegionField("bucket", (0,), "identity", result_type="utf8"),))),
    ],
)
def test_changed_missing_repeated_zero_or_clashing_spec_is_refused(specs: tuple[RegionSpec, ...]) -> None:
    with pytest.raises(InvalidRequestError, match=r"spec|result types"):
        check_commit_without_rows(OLD, replace(OLD, region_specs=specs))


def test_further_spec_is_accepted() -> None:
    check_commit_without_rows(OLD, replace(OLD, region_specs=(SPEC, RegionSpec(2, SPEC.fields))))


@pytest.mark.parametrize("count", [-1, 1 << 32])
def test_region_count_that_does_not_fit_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequestError, match="number of regions"):
        check_commit_without_rows(OLD, replace(OLD, num_regions=count))
