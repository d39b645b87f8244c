"""Ages that count from the beginning of the oldest work under way."""

from __future__ import annotations

import pytest

from memwal_core.clock import SystemClock
from memwal_core.errors import InternalError
from testkit.horizon import Horizon, HorizonClock


def test_moment_is_when_the_oldest_work_under_way_began() -> None:
    horizon, clock = Horizon(), SystemClock()
    before = clock.now()
    first = horizon.enter()
    between = clock.now()
    second = horizon.enter()

    assert before <= HorizonClock(horizon).now() <= between
    horizon.begin(first)
    assert between <= horizon.moment() <= clock.now()
    horizon.leave(second)
    horizon.leave(first)
    assert horizon.moment() >= between
    again = clock.now()
    assert horizon.moment() >= again


def test_place_of_one_who_left_is_given_to_the_next() -> None:
    horizon = Horizon()
    places = [horizon.enter() for _ in range(16)]

    with pytest.raises(InternalError):
        horizon.enter()
    horizon.leave(places[3])
    assert horizon.enter() == places[3]
