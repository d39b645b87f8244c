"""The four states of a generation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from memwal_core.observe.lifecycle import GenerationSpan, GenerationState, generation_states

OPEN, SEALED, FLUSHED, MERGED = ORDER = tuple(GenerationState)


@dataclass(frozen=True)
class Life:
    """How far a region is."""

    merged: int = 0
    current: int = 1
    active: int = 1

    def steps(self) -> list[Life]:
        rotate = [replace(self, active=self.active + 1)] if self.active < 4 else []
        flush = [replace(self, current=self.current + 1)] if self.current < self.active else []
        merge = [replace(self, merged=self.merged + 1)] if self.merged + 1 < self.current else []
        return rotate + flush + merge

    def states(self) -> dict[int, GenerationState]:
        spans = generation_states(self.merged, range(1, self.current), self.current, self.active)
        return {number: span.state for span in spans for number in range(span.first, span.last + 1)}


@pytest.mark.req("LEG-12")
def test_every_step_of_a_region_takes_one_generation_one_state_forward_and_no_other():
    """All lives of a region of up to four generations: rotate, flush the oldest, merge the oldest."""
    pending, seen = [Life()], {Life()}
    while pending:
        life = pending.pop()
        for step in life.steps():
            old, new = life.states(), step.states()
            moves = [ORDER.index(state) - ORDER.index(old[number]) for number, state in new.items() if number in old]
            assert sorted(moves) == [*([0] * (len(moves) - 1)), 1]
            if step not in seen:
                seen.add(step)
                pending.append(step)
    assert len(seen) == 20


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


def test_far_away_current_generation_costs_no_more_than_a_near_one():
    assert generation_states(2, [3, 5], 2**64 - 1) == (
        GenerationSpan(1, 2, MERGED),
        GenerationSpan(3, 3, FLUSHED),
        GenerationSpan(4, 4, None),
        GenerationSpan(5, 5, FLUSHED),
        GenerationSpan(6, 2**64 - 2, None),
        GenerationSpan(2**64 - 1, 2**64 - 1, OPEN),
    )
