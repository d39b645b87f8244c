"""Generations that are not recorded, however far the numbers of a manifest lie apart."""

from __future__ import annotations

from memwal_core.region.holes import holes


def test_what_is_not_recorded_comes_as_spans() -> None:
    assert list(holes([2, 3, 7], 1, 10)) == [range(1, 2), range(4, 7), range(8, 10)]


def test_nothing_is_missing_where_all_is_recorded() -> None:
    assert list(holes([1, 2, 3], 1, 4)) == []
    assert list(holes([], 5, 5)) == []
    assert list(holes([], 9, 5)) == []


def test_what_lies_outside_does_not_count() -> None:
    assert list(holes([1, 5, 9], 4, 7)) == [range(4, 5), range(6, 7)]


def test_work_grows_with_what_is_recorded_and_not_with_the_numbers() -> None:
    assert list(holes([5], 1, 2**64)) == [range(1, 5), range(6, 2**64)]
