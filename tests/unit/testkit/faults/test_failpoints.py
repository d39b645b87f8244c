"""Failpoints do nothing unless a test arms them, and a test kills at each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import memwal_core
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint
from testkit.faults.failpoints import ArmedFailpoints, CallingFailpoints, SimulatedCrash
from tests.integration.jobs.catchup import test_catchup
from tests.integration.jobs.compact import test_compact
from tests.integration.jobs.copies import test_kills as test_killed_copies
from tests.integration.jobs.copies import test_relocate
from tests.integration.jobs.flush_idle import test_killed_processes
from tests.integration.jobs.merge import test_strategy_contract
from tests.integration.jobs.repair import test_kills, test_wal
from tests.integration.jobs.snapshot import test_build
from tests.integration.writer import test_flush_failures

COMMIT = Failpoint("commit")
_NAMED = re.compile(r'^(\w+) = Failpoint\("(.+)"\)$', re.MULTILINE)
_AROUND = re.compile(r"\.around\((\w+)\)")


def test_production_passes_places_and_blocks_without_effect() -> None:
    NO_FAILPOINTS.hit(COMMIT)
    with NO_FAILPOINTS.around(COMMIT):
        pass


def test_unarmed_places_do_nothing_but_are_counted() -> None:
    points = ArmedFailpoints()

    points.hit(COMMIT)
    points.hit(COMMIT)

    assert points.hits == {"commit": 2}


def test_armed_place_crashes_once_at_the_given_hit_from_now() -> None:
    points = ArmedFailpoints()
    points.hit(COMMIT)
    points.arm(COMMIT, nth=2)

    points.hit(COMMIT)
    with pytest.raises(SimulatedCrash, match="commit"):
        points.hit(COMMIT)
    points.hit(COMMIT)
    points.hit(Failpoint("other"))


def test_armed_place_calls_its_action_instead_of_crashing() -> None:
    done: list[str] = []
    points = ArmedFailpoints().arm(COMMIT, lambda: done.append("rival"))

    points.hit(COMMIT)
    points.hit(COMMIT)

    assert done == ["rival"]


def test_block_is_between_its_two_places_and_the_second_is_missed_if_it_raises() -> None:
    seen: list[str] = []
    points = CallingFailpoints(seen.append)

    with points.around(COMMIT):
        seen.append("inside")
    with pytest.raises(OSError, match="lost"), points.around(COMMIT):
        raise OSError("lost")

    assert seen == ["commit", "inside", "commit.done", "commit"]


def test_crash_is_not_caught_as_an_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_every_failpoint_is_killed_at_by_a_test() -> None:
    """The tests named here are parametrized over these places, and each expects the crash that it armed."""
    killed_at = {
        *(place for place, _ in test_catchup.PLACES),
        *test_compact.PLACES,
        *test_strategy_contract.PLACES,
        *test_build.PLACES,
        *test_kills.OWN,
        *test_wal.PLACES,
        *test_killed_copies.PLACES,
        *test_relocate.PLACES,
        *(place for place, _ in test_killed_processes.PLACES),
        *(each.values[-1] for each in test_flush_failures.EVERYWHERE),
    }

    assert _places_in_code() == killed_at


def _places_in_code() -> set[Failpoint]:
    package = Path(memwal_core.__file__).parent
    sources = [path.read_text("utf-8") for path in package.rglob("*.py") if "testing" not in path.parts]
    found: set[Failpoint] = set()
    for source in sources:
        around = set(_AROUND.findall(source))
        for constant, name in _NAMED.findall(source):
            place = Failpoint(name)
            found |= {place, place.done} if constant in around else {place}
    return found
