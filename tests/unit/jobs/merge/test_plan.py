"""The merge plan: which generations, in which order, and why not the others."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.stuck import PAGES, explain_stuck
from memwal_core.jobs.merge.plan import Defect, MergeSurvey, SurveyedGeneration, SurveyedRegion, Verdict, plan_merge
from memwal_core.region.audited import Audited
from memwal_core.settings import MergeSettings

A, B, C = (RegionId(uuid.UUID(int=number)) for number in (1, 2, 3))
WIDE = MergeSettings(max_bytes=10**9, max_generations=1000)


def generation(number: int, size: int = 10, defect: Defect | None = None) -> SurveyedGeneration:
    return SurveyedGeneration(number, f"/g{number}", size, 1, defect, "why" if defect else "")


def region(region_id=A, merged=0, current=None, numbers=(), size=10, defects=None):
    defects = defects or {}
    found = tuple(generation(number, size, defects.get(number)) for number in numbers)
    current = current if current is not None else max((merged, *numbers)) + 1
    return SurveyedRegion(region_id, 1, current, merged, found)


def plan(*regions, bounds=WIDE, selected=None, until=None, audited=None):
    return plan_merge(MergeSurvey("/t", 7, tuple(regions)), bounds, regions=selected, until=until, audited=audited)


def taken(result):
    return {each.region_id: [one.generation for one in each.take] for each in result.regions}


@pytest.mark.req("MRG-02", "MRG-03", "MRG-17")
def test_candidates_are_the_recorded_generations_above_the_progress():
    result = plan(region(merged=5, numbers=[4, 5, 6, 7]))
    assert taken(result) == {A: [6, 7]}
    assert result.marks == {A: 7}
    assert result.regions[0].verdict is Verdict.COMPLETE


@pytest.mark.req("MRG-02")
def test_region_without_progress_begins_at_generation_one():
    assert taken(plan(region(merged=0, numbers=[1, 2]))) == {A: [1, 2]}


@pytest.mark.req("MRG-04")
def test_generations_recorded_in_any_order_are_taken_ascending():
    assert taken(plan(region(merged=5, numbers=[7, 6]))) == {A: [6, 7]}


@pytest.mark.req("MRG-19")
def test_lowest_candidate_above_the_next_one_blocks_with_evidence():
    result = plan(region(merged=5, numbers=[8]))
    assert result.marks == {}
    (stuck,) = result.stuck
    assert stuck.verdict is Verdict.HOLE
    assert "generation 6 is next" in stuck.evidence
    assert "[8]" in stuck.evidence


@pytest.mark.req("MRG-19")
def test_same_manifest_goes_on_when_the_progress_has_caught_up():
    assert taken(plan(region(merged=7, numbers=[8]))) == {A: [8]}


@pytest.mark.req("MRG-19")
def test_hole_in_the_middle_takes_what_lies_before_it_and_other_regions_go_on():
    result = plan(region(A, merged=0, numbers=[1, 3]), region(B, merged=0, numbers=[1, 2]))
    assert taken(result) == {A: [1], B: [1, 2]}
    assert [(each.region_id, each.verdict) for each in result.stuck] == [(A, Verdict.HOLE)]


@pytest.mark.req("MRG-19")
def test_flushed_generation_that_is_recorded_nowhere_blocks():
    result = plan(region(merged=5, numbers=[6], current=8))
    assert taken(result) == {A: [6]}
    assert result.regions[0].verdict is Verdict.HOLE


@pytest.mark.req("MRG-20")
def test_progress_ahead_of_the_region_blocks():
    result = plan(region(merged=8, numbers=[6], current=8))
    assert result.regions[0].verdict is Verdict.AHEAD
    assert result.marks == {}


def test_missing_and_unmappable_generations_end_a_region_with_their_own_verdict():
    result = plan(
        region(A, numbers=[1, 2, 3], defects={2: Defect.MISSING}),
        region(B, numbers=[1, 2], defects={1: Defect.SCHEMA}),
    )
    assert taken(result) == {A: [1], B: []}
    assert [each.verdict for each in result.regions] == [Verdict.MISSING, Verdict.PARKED]
    assert all("why" in each.evidence for each in result.stuck)


def test_generations_behind_what_only_a_person_resolves_wait():
    """Reports said that nothing waits in exactly the regions that were stuck."""
    held = replace(region(C, numbers=[1, 2]), quarantined={1: "an expectation failed"})

    result = plan(
        region(A, numbers=[1, 3, 4, 6], size=10),
        region(B, numbers=[1, 2, 3], defects={2: Defect.SCHEMA}, size=10),
        held,
    )

    assert taken(result) == {A: [1], B: [1], C: []}
    assert [(each.waiting, each.stuck) for each in result.regions] == [(3, 3), (2, 2), (2, 2)]
    assert [each.waiting_bytes for each in result.regions[:2]] == [30, 20]
    assert [(each.mergeable, each.mergeable_bytes) for each in result.regions[:2]] == [(1, 10), (1, 10)]


def test_generations_left_to_later_passes_and_stuck_ones_wait_together():
    lacking = region(A, numbers=[1, 2, 3, 5], size=10)

    (share,) = plan(lacking, bounds=MergeSettings(max_generations=1)).regions

    assert share.verdict is Verdict.NEXT_PASS
    assert (share.waiting, share.stuck, share.mergeable, share.mergeable_bytes) == (3, 1, 3, 30)


def test_nothing_flushed_is_nothing_to_merge():
    result = plan(region(merged=5, current=6))
    assert result.regions[0].verdict is Verdict.NOTHING_TO_MERGE
    assert not result.stuck


def test_what_was_flushed_after_the_run_had_begun_is_left_to_the_next_one():
    result = plan(
        region(A, merged=1, numbers=[2, 3, 4, 5]),
        region(B, merged=2, numbers=[3]),
        region(C, numbers=[1]),
        until={A: 3, B: 2},
    )
    assert taken(result) == {A: [2, 3], B: [], C: []}
    assert {each.verdict for each in result.regions} == {Verdict.NEXT_RUN}
    assert [each.waiting for each in result.regions] == [2, 1, 1]
    assert "generations 4 to 5 were flushed after this run began" in result.regions[0].evidence
    assert not result.stuck


def test_hole_above_what_the_run_takes_on_is_found_by_the_next_run():
    lacking = region(merged=1, numbers=[2, 5])
    assert plan(lacking, until={A: 2}).regions[0].verdict is Verdict.NEXT_RUN
    assert plan(lacking, until={A: 3}).regions[0].verdict is Verdict.HOLE


def test_first_generation_is_taken_whatever_its_size():
    result = plan(region(numbers=[1, 2], size=100), bounds=MergeSettings(max_bytes=1))
    assert taken(result) == {A: [1]}
    assert (result.regions[0].verdict, result.regions[0].waiting) == (Verdict.NEXT_PASS, 1)
    assert result.regions[0].waiting_bytes == 100


def test_bytes_are_bounded_over_all_regions():
    regions = [region(each, numbers=[1, 2, 3], size=10) for each in (A, B, C)]
    result = plan(*regions, bounds=MergeSettings(max_bytes=50))
    assert result.size_bytes == 50
    assert sorted(map(len, taken(result).values())) == [1, 2, 2]


def test_region_whose_next_generation_does_not_fit_leaves_room_to_the_others():
    large = SurveyedRegion(A, 1, 3, 0, (generation(1, 10), generation(2, 90)))
    result = plan(large, region(B, numbers=[1, 2], size=10), bounds=MergeSettings(max_bytes=60))
    assert taken(result) == {A: [1], B: [1, 2]}


def test_generations_are_bounded_and_regions_take_turns_worst_lag_first():
    result = plan(
        region(A, numbers=[1]),
        region(B, numbers=[1, 2, 3, 4, 5]),
        region(C, numbers=[1, 2]),
        bounds=MergeSettings(max_generations=4),
    )
    assert taken(result) == {A: [1], B: [1, 2], C: [1]}


def test_equal_lag_by_count_prefers_more_bytes():
    result = plan(
        region(A, numbers=[1], size=10), region(B, numbers=[1], size=20), bounds=MergeSettings(max_generations=1)
    )
    assert taken(result) == {A: [], B: [1]}


def test_unselected_regions_are_named_so():
    result = plan(region(A, numbers=[1]), region(B, numbers=[1]), selected={B})
    assert taken(result) == {A: [], B: [1]}
    assert result.regions[0].verdict is Verdict.NOT_SELECTED


def test_unknown_selected_region_is_refused():
    with pytest.raises(InvalidRequestError) as raised:
        plan(region(A, numbers=[1]), selected={C})
    assert raised.value.facts["unknown"] == [str(C)]


def test_marks_name_only_surveyed_regions_and_the_plan_is_json():
    result = plan(region(B, numbers=[1]), region(A, numbers=[1, 3]))
    document = json.loads(json.dumps(result.to_dict()))
    assert document["marks"] == {str(A): 1, str(B): 1}
    assert [each["region_id"] for each in document["regions"]] == [str(A), str(B)]
    assert document["regions"][0]["verdict"] == "blocked: hole"


regions_strategy = st.lists(
    st.tuples(st.integers(0, 5), st.lists(st.integers(1, 12), max_size=8, unique=True), st.integers(1, 50)),
    min_size=1,
    max_size=5,
)


@pytest.mark.req("MRG-03", "MRG-19", "MRG-20")
@given(regions_strategy, st.integers(1, 200), st.integers(1, 10))
@settings(derandomize=True, deadline=None)
def test_any_plan_is_contiguous_bounded_and_ends(shapes, max_bytes, max_generations):
    bounds = MergeSettings(max_bytes=max_bytes, max_generations=max_generations)
    state = {
        RegionId(uuid.UUID(int=number)): (merged, numbers, size)
        for number, (merged, numbers, size) in enumerate(shapes)
    }
    for _ in range(100):
        result = plan(
            *(region(each, merged, None, numbers, size) for each, (merged, numbers, size) in state.items()),
            bounds=bounds,
        )
        if not result.marks:
            break
        assert result.generations <= max_generations
        assert result.generations == 1 or result.size_bytes <= max_bytes
        for each in result.regions:
            first = each.merged + 1
            assert [one.generation for one in each.take] == list(range(first, first + len(each.take)))
            if each.take:
                state[each.region_id] = (each.take[-1].generation, *state[each.region_id][1:])
    assert not result.marks
    for each, (merged, numbers, _) in state.items():
        assert merged + 1 not in numbers, each


def test_what_is_stuck_is_one_error_with_all_regions_and_the_page_of_the_most_urgent():
    result = plan(region(A, merged=0, numbers=[2]), region(B, merged=8, numbers=[6], current=8), region(C, numbers=[1]))

    error = explain_stuck("/t", result)

    assert error is not None
    assert error.exit_code == 5
    assert set(error.facts["regions"]) == {str(A), str(B)}
    assert error.remedy.endswith("docs/runbooks/progress-lost.md")
    assert explain_stuck("/t", plan(region(numbers=[1]))) is None


def test_every_verdict_that_needs_a_person_has_a_page():
    root = Path(__file__).parents[4]

    assert set(PAGES) == {verdict for verdict in Verdict if verdict.needs_human}
    assert [page for page in PAGES.values() if not (root / page).is_file()] == []


def test_region_that_cannot_be_read_is_parked_and_the_others_go_on():
    lost = replace(region(A, numbers=[1, 2]), damage="its manifest is gone")

    result = plan(lost, region(B, numbers=[1]))

    assert taken(result) == {A: [], B: [1]}
    assert result.regions[0].verdict is Verdict.DAMAGED


def test_generation_in_quarantine_ends_what_its_region_may_give():
    held = replace(region(A, numbers=[1, 2, 3]), quarantined={2: "an expectation failed"})

    result = plan(held)

    assert taken(result) == {A: [1]}
    assert result.regions[0].verdict is Verdict.QUARANTINED
    assert "generation 2" in result.regions[0].evidence


def test_gated_merge_takes_what_the_audit_saw_and_says_what_waits():
    audited = Audited(datetime(2026, 6, 1, tzinfo=UTC), {A: {"g1": "", "g2": ""}, B: {"g1": "cut short"}})

    result = plan(region(A, numbers=[1, 2, 3, 4]), region(B, numbers=[1]), region(C, numbers=[1]), audited=audited)

    assert taken(result) == {A: [1, 2], B: [], C: []}
    assert [each.verdict for each in result.regions] == [Verdict.UNAUDITED, Verdict.DAMAGED, Verdict.UNAUDITED]
    assert [each.evidence for each in result.regions] == [
        "the audit of 2026-06-01 00:00:00 UTC did not see generations 3 to 4",
        "generation 1: the audit could not read it: cut short",
        "the audit of 2026-06-01 00:00:00 UTC did not see generation 1",
    ]
    assert [(each.waiting, each.stuck) for each in result.regions] == [(2, 2), (1, 1), (1, 1)]
    assert [each.mergeable for each in result.regions] == [2, 0, 0]


def test_gated_merge_without_an_audit_takes_what_people_released_alone():
    result = plan(region(A, numbers=[1, 2]), region(B, numbers=[1]), audited=Audited(released=frozenset({(A, 1)})))

    assert taken(result) == {A: [1], B: []}
    assert {each.evidence for each in result.unaudited} == {"no audit by these suites is recorded"}


def test_generation_of_a_region_that_began_again_is_not_the_one_that_was_audited():
    anew = replace(region(A, numbers=[1]), generations=(replace(generation(1), uri="/other"),))

    assert taken(plan(anew, audited=Audited(datetime(2026, 6, 1, tzinfo=UTC), {A: {"g1": ""}}))) == {A: []}
