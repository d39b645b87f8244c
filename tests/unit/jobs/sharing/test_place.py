"""Where a job does its work, and why."""

from __future__ import annotations

import pytest

from memwal_core.jobs.sharing.place import Engine, SizeBound, Work, choose_place
from memwal_core.settings import ExecutorSettings

REGIONS, BYTES = "executors.min_regions", "executors.min_bytes"
SETTINGS = ExecutorSettings(min_regions=10, min_bytes=1000)


@pytest.mark.parametrize(
    ("work", "on_executors"),
    [
        (Work(regions=9), False),
        (Work(regions=10), True),
        (Work(size_bytes=999), False),
        (Work(size_bytes=1000), True),
        (Work(regions=1, size_bytes=1000), True),
        (Work(), False),
    ],
)
def test_large_work_goes_to_executors_if_there_are_any(work, on_executors):
    assert choose_place(work, Engine.AUTO, SETTINGS, reachable=True).on_executors is on_executors
    assert not choose_place(work, Engine.AUTO, SETTINGS, reachable=False).on_executors


@pytest.mark.parametrize(
    ("work", "size_bytes", "line"),
    [
        (Work(size_bytes=99), 100, "in this process: 99 B take less time than tasks take to begin"),
        (Work(size_bytes=100), 100, "on executors: 100 B are at least a.bound, which is 100 B"),
        (Work(size_bytes=1000), 1001, "in this process: 1,000 B take less time than tasks take to begin"),
        (Work(), 0, "on executors: 0 B are at least a.bound, which is 0 B"),
    ],
)
def test_job_may_have_a_bound_of_its_own(work, size_bytes, line):
    place = choose_place(work, Engine.AUTO, SETTINGS, reachable=True, bound=SizeBound(size_bytes, "a.bound"))

    assert str(place) == line


@pytest.mark.parametrize("reachable", [True, False])
def test_engine_that_was_asked_for_is_taken_whatever_the_size(reachable):
    assert choose_place(Work(regions=1), Engine.SPARK, SETTINGS, reachable=reachable).on_executors
    assert not choose_place(Work(regions=99), Engine.LOCAL, SETTINGS, reachable=reachable).on_executors


@pytest.mark.parametrize(
    ("work", "engine", "reachable", "line"),
    [
        (Work(regions=10), Engine.AUTO, True, f"on executors: 10 regions are at least {REGIONS}, which is 10"),
        (Work(regions=9), Engine.AUTO, True, "in this process: 9 regions take less time than tasks take to begin"),
        (Work(regions=99), Engine.AUTO, False, "in this process: 99 regions, and this process has no executors"),
        (Work(regions=1), Engine.SPARK, False, "on executors: it was asked for, but this process has none"),
        (Work(size_bytes=1000), Engine.AUTO, True, f"on executors: 1,000 B are at least {BYTES}, which is 1,000 B"),
    ],
)
def test_place_says_why(work, engine, reachable, line):
    place = choose_place(work, engine, SETTINGS, reachable=reachable)

    assert str(place) == line
    assert place.to_dict() == {"engine": "spark" if place.on_executors else "local", "reason": place.reason}
