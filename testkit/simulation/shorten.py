"""Finding the few turns of a long run that a failure needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from testkit.simulation.schedule import Schedule
from testkit.simulation.simulate import SimulationFailedError

Play = Callable[[Schedule], SimulationFailedError | None]
"""Plays some turns of a seed anew; returns how they fail, None if they do not."""


def shortened(found: SimulationFailedError, play: Play) -> tuple[Schedule, SimulationFailedError]:
    """Return the fewest turns that we find to fail of the same symptom, and how they fail.

    Delta debugging: turns are left out, half of them first, then a quarter, and so on; then what goes wrong in those
    that are needed. A few dozen schedules are played.
    """
    failure, schedule = found, Schedule.of(found.turn)

    def still_fails(tried: Schedule) -> bool:
        nonlocal failure, schedule
        seen = play(tried)
        if seen is None or seen.symptom is not found.symptom:
            return False
        failure, schedule = seen, tried
        return True

    def fails_with(turns: frozenset[int]) -> bool:
        return still_fails(Schedule(tuple(sorted(turns))))

    _fewest(schedule.turns, fails_with)
    for turn in schedule.turns:

        def fails_of(troubles: frozenset[int], turn: int = turn) -> bool:
            return still_fails(replace(schedule, troubles={**schedule.troubles, turn: troubles}))

        drawn = range(1, failure.troubles.get(turn, 0) + 1)
        if not fails_of(frozenset()):
            _fewest(drawn, fails_of)
    return schedule, failure


def _fewest(numbers: Iterable[int], fails: Callable[[frozenset[int]], bool]) -> None:
    """Ask which of some numbers are needed, ever fewer at once; all of them together fail."""
    left = list(numbers)
    size = max(1, len(left) // 2)
    while True:
        begin = 0
        while begin < len(left):
            fewer = left[:begin] + left[begin + size :]
            if fails(frozenset(fewer)):
                left = fewer
            else:
                begin += size
        if size == 1:
            return
        size //= 2
