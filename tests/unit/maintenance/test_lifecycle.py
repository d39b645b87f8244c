"""The four states of a generation."""

from __future__ import annotations

import itertools

import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.maintenance.lifecycle import GenerationSpan, GenerationState, check_transition, generation_states

OPEN, SEALED, FLUSHED, MERGED = GenerationState


@pytest.mark.req("LEG-12")
def test_states_advance_one_step_at_a_time_and_every_other_move_is_refused():
    allowed = {(OPEN, SEALED), (SEALED, FLUSHED), (FLUSHED, MERGED)}
    for old, new in itertools.product(GenerationState, repeat=2):
        if (old, new) in allowed:
            check_transition(old, new)
        else:
            with pytest.raises(InvalidRequestError):
                check_transition(old, new)


@pytest.mark.req("LEG-13")
def test_example_of_appendix_four_shows_four_merged_one_flushed_one_open():
    assert generation_states(merged=4, recorded=[5], current_generation=6) == (
        GenerationSpan(1, 4, MERGED),
        GenerationSpan(5, 5, FLUSHED),
        GenerationSpan(6, 6, OPEN),
    )


@pytest.mark.req("LEG-13", "LEG-11")
def test_listed_generation_at_or_below_the_progress_is_merged():
    assert generation_states(merged=2, recorded=[1, 2, 3], current_generation=4)[0] == GenerationSpan(1, 2, MERGED)


@pytest.mark.req("LEG-13", "LEG-09")
def test_generations_between_current_and_active_are_sealed():
    assert generation_states(merged=0, recorded=[1], current_generation=2, active_generation=5) == (
        GenerationSpan(1, 1, FLUSHED),
        GenerationSpan(2, 4, SEALED),
        GenerationSpan(5, 5, OPEN),
    )


def test_new_region_has_one_open_generation():
    assert generation_states(merged=0, recorded=[], current_generation=1) == (GenerationSpan(1, 1, OPEN),)


@pytest.mark.req("LEG-13", "MRG-19")
def test_unrecorded_generation_has_no_state():
    spans = generation_states(merged=1, recorded=[2, 4], current_generation=5)
    assert GenerationSpan(3, 3, None) in spans


@pytest.mark.req("LEG-15")
def test_exactly_one_generation_is_open():
    for merged, current, active in itertools.product(range(4), range(1, 5), range(1, 6)):
        if merged < current:
            spans = generation_states(merged, range(merged + 1, current), current, active)
            assert sum(span.last - span.first + 1 for span in spans if span.state is OPEN) == 1
            assert [span.first for span in spans][1:] == [span.last + 1 for span in spans][:-1]
