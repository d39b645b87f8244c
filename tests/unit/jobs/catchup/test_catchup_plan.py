"""What each index needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from memwal_core.base_table import IndexCoverage
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.jobs.catchup.plan import CatchupPlan, CatchupSurvey, CatchupVerdict, plan_catchup
from memwal_core.settings import CatchupSettings

A, B = RegionId(uuid.UUID(int=1)), RegionId(uuid.UUID(int=2))


def index(name: str = "x", *, unindexed: tuple[int, ...] = (), segments: int = 1, kind: str = "BTree") -> IndexCoverage:
    return IndexCoverage(name, kind, segments, unindexed, 10 * len(unindexed))


def plan(
    *indexes: IndexCoverage,
    merged: Mapping[RegionId, int] | None = None,
    recorded: Mapping[str, Mapping[RegionId, int]] | None = None,
    fragments: int = 3,
    maintained: tuple[str, ...] = (),
    settings: CatchupSettings | None = None,
    selected: set[str] | None = None,
    merge_segments: bool = False,
    outdated: frozenset[str] = frozenset(),
) -> CatchupPlan:
    survey = CatchupSurvey("/t", 9, merged or {}, recorded or {}, maintained, fragments, indexes, outdated)
    return plan_catchup(survey, settings or CatchupSettings(), indexes=selected, merge_segments=merge_segments)


def verdict(found: CatchupPlan, name: str = "x") -> CatchupVerdict:
    named = found.named(name)
    assert named is not None
    return named.verdict


def test_unindexed_fragments_are_extended_over_even_if_catch_up_says_otherwise():
    found = plan(index(unindexed=(4, 5)), merged={A: 2}, recorded={"x": {A: 2}})
    assert verdict(found) is CatchupVerdict.BEHIND
    assert (found.to_extend[0].unindexed_fragments, found.to_extend[0].unindexed_rows) == (2, 20)


@pytest.mark.req("CAT-10", "CAT-13")
@pytest.mark.parametrize("recorded", [{}, {"x": {}}, {"x": {A: 1}}, {"x": {A: 2, B: 1}}])
def test_covering_index_whose_entry_is_missing_or_behind_is_only_recorded(recorded: dict[str, dict[RegionId, int]]):
    found = plan(index(), merged={A: 2, B: 2}, recorded=recorded)
    assert verdict(found) is CatchupVerdict.UNRECORDED
    assert (found.to_extend, found.to_record) == ((), ("x",))


def test_outdated_index_gets_no_segment_beside_the_others():
    found = plan(index("x", unindexed=(4,), segments=2), index("y", unindexed=(4,)), outdated=frozenset({"x"}))
    assert [each.segments_to_merge for each in found.indexes] == [2, 0]


def test_lag_is_that_of_the_worst_region():
    found = plan(index(), merged={A: 7, B: 2}, recorded={"x": {A: 3, B: 2}}).named("x")
    assert found is not None
    assert (found.regions_behind, found.lag) == (1, 4)


def test_covered_and_recorded_index_needs_nothing():
    found = plan(index(), merged={A: 2}, recorded={"x": {A: 2}})
    assert (verdict(found), found.is_due) == (CatchupVerdict.CAUGHT_UP, False)


def test_nothing_is_recorded_before_anything_is_merged():
    assert verdict(plan(index())) is CatchupVerdict.NOTHING_MERGED


def test_empty_table_proves_nothing_about_its_indexes():
    found = plan(index(), merged={A: 2}, fragments=0)
    assert (verdict(found), found.is_due) == (CatchupVerdict.EMPTY_TABLE, False)


@pytest.mark.parametrize(("segments", "merges"), [(1, 0), (2, 0), (3, 3), (5, 5)])
def test_segments_are_merged_when_the_next_one_would_be_too_many(segments: int, merges: int):
    found = plan(index(unindexed=(1,), segments=segments), settings=CatchupSettings(max_segments=3))
    assert found.to_extend[0].segments_to_merge == merges


def test_several_segments_are_merged_on_request_although_nothing_is_unindexed():
    assert verdict(plan(index(segments=2))) is CatchupVerdict.NOTHING_MERGED
    found = plan(index(segments=2), merge_segments=True)
    assert (verdict(found), found.to_extend[0].segments_to_merge) == (CatchupVerdict.SEGMENTS, 2)


@pytest.mark.req("CAT-02")
def test_selection_leaves_other_indexes_alone():
    found = plan(index("x", unindexed=(1,)), index("y", unindexed=(1,)), selected={"y"})
    assert [each.name for each in found.to_extend] == ["y"]
    assert verdict(found, "x") is CatchupVerdict.NOT_SELECTED


def test_maintained_index_that_is_gone_needs_somebody():
    found = plan(index("x"), maintained=("gone", "x"))
    assert verdict(found, "gone") is CatchupVerdict.MISSING
    assert CatchupVerdict.MISSING.needs_human


def test_unknown_index_is_refused():
    with pytest.raises(InvalidRequestError) as raised:
        plan(index("x"), selected={"typo"})
    assert raised.value.facts["unknown"] == ["typo"]


@pytest.mark.parametrize(("kind", "vector"), [("IVF_PQ", True), ("IVF_HNSW_SQ", True), ("BTree", False)])
def test_vector_indexes_are_told_from_others(kind: str, vector: bool):
    assert index(kind=kind).is_vector is vector
