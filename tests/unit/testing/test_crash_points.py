from __future__ import annotations

import pytest

from memwal_core.testing.crash import CrashPoints, SimulatedCrash


def test_unarmed_points_do_nothing_but_are_counted() -> None:
    points = CrashPoints()

    points.reach("flush.before_commit")
    points.reach("flush.before_commit")

    assert points.reached == {"flush.before_commit": 2}


def test_armed_point_crashes_once_at_the_given_call_from_now() -> None:
    points = CrashPoints()
    points.reach("commit")
    points.arm("commit", nth=2)

    points.reach("commit")
    with pytest.raises(SimulatedCrash, match="commit"):
        points.reach("commit")
    points.reach("commit")
    points.reach("other")


def test_crash_is_not_caught_as_an_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_disarmed_point_does_nothing() -> None:
    points = CrashPoints()
    points.arm("commit")

    points.disarm()

    points.reach("commit")
