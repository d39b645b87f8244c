"""The picture of a region's generations."""

from __future__ import annotations

from memwal_core.observe.lifecycle import GenerationSpan, GenerationState
from memwal_core.web.timeline import WIDTH, draw_timeline

MERGED, FLUSHED, OPEN = GenerationState.MERGED, GenerationState.FLUSHED, GenerationState.OPEN


def test_stretches_follow_each_other_and_fill_the_picture() -> None:
    spans = [GenerationSpan(1, 400, MERGED), GenerationSpan(401, 402, FLUSHED), GenerationSpan(403, 403, OPEN)]

    stretches = draw_timeline(spans)

    assert [stretch.state for stretch in stretches] == ["merged", "flushed", "open"]
    assert stretches[0].x == 0
    assert abs(stretches[-1].x + stretches[-1].width - WIDTH) < 0.5
    assert stretches[1].label == "generations 401 to 402: flushed"
    assert stretches[2].width > 20  # the newest stays visible beside four hundred merged ones


def test_generation_that_is_not_recorded_is_drawn_as_missing() -> None:
    [stretch] = draw_timeline([GenerationSpan(3, 3, None)])

    assert (stretch.state, stretch.label) == ("missing", "generation 3: missing")


def test_held_generation_is_drawn_apart_from_its_neighbours() -> None:
    stretches = draw_timeline([GenerationSpan(1, 2, MERGED), GenerationSpan(3, 9, FLUSHED)], quarantined=(2, 5, 9))

    assert [(stretch.state, stretch.numbers) for stretch in stretches] == [
        ("merged", "1-2"),
        ("flushed", "3-4"),
        ("quarantined", "5"),
        ("flushed", "6-8"),
        ("quarantined", "9"),
    ]
    assert abs(stretches[-1].x + stretches[-1].width - WIDTH) < 0.5


def test_region_without_generations_is_an_empty_picture() -> None:
    assert draw_timeline([]) == ()
