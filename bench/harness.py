"""Measure several ways of doing one thing, in turn, on the same data.

The ways (arms) of a comparison are run one after the other in each round, and each round begins
with another arm, so that slow drift of the machine meets all of them alike. Ratios are taken
within a round. A first round warms up and is not counted. Every arm proves after its timed part
that the work was done; an arm that fails is reported with its error and takes nothing else with it.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from memwal_core.clock import Clock

Sample = Mapping[str, float]
"""Measured values by the names of measures, of all operations of a case together."""

Work = Callable[[], float | Sample | None]
"""The timed part of a trial: all operations of the case, once.

What it returns is the sample instead of its time. With several values, the time is taken for the
comparison's measure if that is not among them.
"""

MIN_ROUNDS = 3
"""Rounds that count at least, however long they take."""


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


PROCESSOR = Measure("processor seconds per operation", "ms of processor each", 1000.0)
"""What all threads of the process worked for one operation: unlike time, hardly disturbed by a busy disk."""


def with_processor_time(work: Work, operations: int) -> Work:
    """Return work that tells its processor time, too; for comparisons that name ``PROCESSOR`` among ``also``."""

    def timed() -> Sample:
        before = _processor_seconds()
        found = work()
        spent = _processor_seconds() - before
        return {**(found if isinstance(found, Mapping) else {}), PROCESSOR.name: spent / operations}

    return timed


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Case:
    """One size at which the arms are compared.

    Attributes:
        name: Shown and recorded.
        operations: Operations that the work of one trial performs.
        data: What the arms work on; the same object for all.
        size: What the cost is plotted against, where a comparison shows growth; ``operations`` if None.
    """

    name: str
    operations: int
    data: Any
    size: float | None = None


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
        also: Further values that the work returns; not divided by operations, no ratios.
        growth: Name of what grows from case to case ("base rows"), if the growth is the question.
        warm_up: Whether a round before the first is run and not counted, where time is measured.
        in_short: Whether the short form has it.
        around: Starts what all its trials use, and ends it.
    """

    name: str
    question: str
    operation: str
    arms: tuple[Arm, ...]
    cases: Callable[[bool], Sequence[Case]]
    measure: Measure = SECONDS
    rounds: int | None = None
    also: tuple[Measure, ...] = ()
    growth: str | None = None
    warm_up: bool = True
    in_short: bool = True
    around: Callable[[], AbstractContextManager[None]] = nullcontext


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
        ratios: To the first arm in the same round; below 1 is faster than it. Empty if that one failed.
        also: Further values by measure, one sample per round.
        error: Why there are no samples.
    """

    name: str
    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    also: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What was measured for one case; ``size`` is what growth is plotted against."""

    name: str
    operations: int
    arms: tuple[ArmResult, ...]
    size: float = 0.0


def spread(samples: Sequence[float]) -> Spread:
    """Return median and range of at least one sample."""
    return Spread(median(samples), min(samples), max(samples))


@dataclass
class _Samples:
    """What one arm has yielded so far."""

    main: list[float] = field(default_factory=list)
    also: dict[str, list[float]] = field(default_factory=dict)
    error: str | None = None

    def add(self, sample: Sample, comparison: Comparison, operations: int) -> None:
        self.main.append(sample[comparison.measure.name] / operations)
        for measure in comparison.also:
            if measure.name in sample:
                self.also.setdefault(measure.name, []).append(sample[measure.name])


def run_case(
    comparison: Comparison, case: Case, *, rounds: int, scratch: Path, clock: Clock, budget_s: float | None = None
) -> CaseResult:
    """Measure all arms of a comparison at one size.

    Args:
        comparison: What to compare.
        case: One of its cases.
        rounds: Rounds that count, at least 1; where time is measured, one more warms up.
        scratch: Where each trial gets a directory of its own, removed after it.
        clock: Measures.
        budget_s: Seconds after which no further round begins, once there are ``MIN_ROUNDS``.
    """
    samples = {arm.name: _Samples() for arm in comparison.arms}
    # Time alone needs warming up.
    first = 0 if comparison.measure is SECONDS and comparison.warm_up else 1
    began = clock.monotonic()
    for number in range(first, rounds + 1):
        if budget_s is not None and number > MIN_ROUNDS and clock.monotonic() - began > budget_s:
            break
        for arm in _rotated(comparison.arms, number):
            own = samples[arm.name]
            if own.error is not None:
                continue
            try:
                sample = _trial(comparison, arm, case, scratch, clock)
            except Exception as error:  # noqa: BLE001 - a failed row must not lose the others
                own.error = f"{type(error).__name__}: {error}"
                continue
            if number > 0:
                own.add(sample, comparison, case.operations)
    reference = samples[comparison.arms[0].name]
    arms = tuple(_arm_result(name, own, reference) for name, own in samples.items())
    return CaseResult(case.name, case.operations, arms, float(case.size if case.size is not None else case.operations))


def _arm_result(name: str, own: _Samples, reference: _Samples) -> ArmResult:
    if own.error is not None:
        return ArmResult(name, (), (), error=own.error)
    # A reference that failed leaves nothing to compare with.
    ratios = () if reference.error else tuple(a / b for a, b in zip(own.main, reference.main, strict=True))
    return ArmResult(name, tuple(own.main), ratios, {each: tuple(values) for each, values in own.also.items()})


def _trial(comparison: Comparison, arm: Arm, case: Case, scratch: Path, clock: Clock) -> Sample:
    with (
        tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as directory,
        arm.prepare(case, Path(directory)) as work,
    ):
        os.sync()  # what earlier trials left to be written must not slow this one down
        start = clock.monotonic()
        sample = work()
        elapsed = clock.monotonic() - start
    if sample is None:
        return {comparison.measure.name: elapsed}
    if isinstance(sample, Mapping):
        return {comparison.measure.name: elapsed, **sample}
    return {comparison.measure.name: float(sample)}


def _rotated(arms: tuple[Arm, ...], number: int) -> tuple[Arm, ...]:
    first = number % len(arms)
    return arms[first:] + arms[:first]
