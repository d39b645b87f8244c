"""Every runbook is followed: make the situation, see that the page is named, type its commands, prove the table."""

from __future__ import annotations

import inspect

import pytest

from tests.integration.runbooks import drills_of_damage, drills_of_freezes, drills_of_lag, drills_of_space
from tests.integration.runbooks.book import MEND, RUNBOOKS, Book
from tests.integration.runbooks.scene import DRILLS, ROWS, Drill, Play, Scene, follow_runbook

MODULES = (drills_of_damage, drills_of_freezes, drills_of_lag, drills_of_space)
"""Their drills are in ``DRILLS`` once they are imported."""


def _marked(each: Drill) -> object:
    return pytest.param(each, id=str(each), marks=[pytest.mark.slow] if each.slow else [])


@pytest.mark.parametrize("each", [_marked(each) for each in DRILLS if not each.spark])
def test_runbook_leads_from_its_situation_to_a_sound_table(each: Drill, place: str) -> None:
    follow_runbook(each, place)


def test_table_that_nothing_happened_to_is_proven_well_and_names_no_page(place: str) -> None:
    scene = Scene(place, Book("pending-generations"), dict(ROWS))

    assert scene.pages_named() == set()
    scene.prove()


def test_proof_refuses_a_table_that_is_not_well_or_has_other_rows(place: str) -> None:
    scene = Scene(place, Book("pending-generations"), {**ROWS, 5: "lost"})
    with pytest.raises(AssertionError, match="other rows"):
        scene.prove()
    scene.vandal.garble_manifest(scene.region)
    with pytest.raises(AssertionError):
        scene.prove()


def test_command_that_the_page_does_not_have_is_not_followed(place: str) -> None:
    scene = Scene(place, Book("pending-generations"), {})
    with pytest.raises(AssertionError, match="does not have"):
        scene.follow("memwal gc $TABLE --yes")


def _source(play: Play) -> str:
    """Return the source of a drill, and of what it calls in its module."""
    called = [play.__globals__.get(name) for name in play.__code__.co_names]
    helpers = [each for each in called if inspect.isfunction(each) and each.__module__ == play.__module__]
    return "".join(inspect.getsource(each) for each in (play, *helpers))


@pytest.mark.parametrize("page", sorted(path.stem for path in RUNBOOKS.glob("*.md")))
def test_every_command_that_mends_is_typed_in_a_drill(page: str) -> None:
    plays = "".join(_source(each.play) for each in DRILLS if each.page == page)

    assert plays, "a runbook without a drill is a guess"
    assert [command for command in Book(page).commands(MEND) if f'"{command}"' not in plays] == []
