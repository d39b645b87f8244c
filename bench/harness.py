"""Measure several ways of doing one thing, in turn, on the same data.

The ways (arms) of a comparison are run one after the other in each round, and each round begins
with another arm, so that slow drift of the machine meets all of them alike. Ratios are taken
within a round. A first round warms up and is not counted. Every arm proves after its timed part
that the work was done.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from memwal_core.clock import Clock

Work = Callable[[], float | None]
"""The timed part of a trial: all operations of the case, once. What it returns is the sample instead of its time."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What samples are.

    Attributes:
        name: Plural, as recorded: "seconds".
        shown: Unit in tables: "ms".
        scale: Shown value of one recorded unit.
    """

    name: str
    shown: str
    scale: float = 1.0


SECONDS = Measure("seconds", "ms", 1000.0)


@dataclass(frozen=True, slots=True)
class Case:
    """One size at which the arms are compared.

    Attributes:
        name: Shown and recorded.
        operations: Operations that the work of one trial performs.
        data: What the arms work on; the same object for all.
    """

    name: str
    operations: int
    data: Any


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of doing it.

    Attributes:
        name: Shown and recorded; short.
        detail: What one must know to judge whether the comparison is fair.
        prepare: Called with the case and an empty directory. Its context sets up, yields the work, and on leaving
            without an error proves that the work was done; only the work is timed.
    """

    name: str
    detail: str
    prepare: Callable[[Case, Path], AbstractContextManager[Work]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question of speed.

    Attributes:
        name: How the command line calls it.
        question: What is measured, one sentence.
        operation: What one operation is, for headings: "put".
        arms: The ways; the first is what the others are compared with.
        cases: Makes the cases; the argument says whether the long form is wanted.
        measure: What samples are; time unless the work of all arms returns something else.
        rounds: Rounds that count, where fewer than usual are enough.
    """

    name: str
    question: str
    operation: str
    arms: tuple[Arm, ...]
    cases: Callable[[bool], Sequence[Case]]
    measure: Measure = SECONDS
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of samples."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What was measured for one arm.

    Attributes:
        name: The arm.
        seconds: Seconds, or what else is measured, per operation; one sample per round.
        ratios: To the first arm in the same round; below 1 is faster than it.
    """

    name: str
    seconds: tuple[float, ...]
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What was measured for one case."""

    name: str
    operations: int
    arms: tuple[ArmResult, ...]


def spread(samples: Sequence[float]) -> Spread:
    """Return median and range of at least one sample."""
    return Spread(median(samples), min(samples), max(samples))


def run_case(comparison: Comparison, case: Case, *, rounds: int, scratch: Path, clock: Clock) -> CaseResult:
    """Measure all arms of a comparison at one size.

    Args:
        comparison: What to compare.
        case: One of its cases.
        rounds: Rounds that count, at least 1; where time is measured, one more warms up.
        scratch: Where each trial gets a directory of its own, removed after it.
        clock: Measures.
    """
    seconds: dict[str, list[float]] = {arm.name: [] for arm in comparison.arms}
    # Time alone needs warming up.
    for number in range(0 if comparison.measure is SECONDS else 1, rounds + 1):
        for arm in _rotated(comparison.arms, number):
            elapsed = _trial(arm, case, scratch, clock)
            if number > 0:
                seconds[arm.name].append(elapsed / case.operations)
    reference = seconds[comparison.arms[0].name]
    return CaseResult(
        case.name,
        case.operations,
        tuple(
            ArmResult(name, tuple(own), tuple(a / b for a, b in zip(own, reference, strict=True)))
            for name, own in seconds.items()
        ),
    )


def _trial(arm: Arm, case: Case, scratch: Path, clock: Clock) -> float:
    with (
        tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory,
        arm.prepare(case, Path(directory)) as work,
    ):
        os.sync()  # what earlier trials left to be written must not slow this one down
        start = clock.monotonic()
        sample = work()
        return clock.monotonic() - start if sample is None else sample


def _rotated(arms: tuple[Arm, ...], number: int) -> tuple[Arm, ...]:
    first = number % len(arms)
    return arms[first:] + arms[:first]
