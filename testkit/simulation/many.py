"""Running many seeds on all processors, and showing what fails."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from memwal_core.rng import system_rng
from memwal_core.text import show_count
from testkit.simulation.contests import WriteKind, in_every_hundred
from testkit.simulation.scenes import RIVALS, SCENES, Scene
from testkit.simulation.schedule import Schedule
from testkit.simulation.shorten import shortened
from testkit.simulation.simulate import SimulationFailedError, SimulationResult

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the tables of a seed live for seconds and need no disk
_FRESH_BELOW = 10**9
_SHORTENED = 3
"""So many failures at most are made shorter: a broken rule fails in hundreds of seeds, of the same."""
_TOLD_EVERY = 100
"""After so many seeds each, a log is told how far it is; a terminal has a bar."""


@dataclass
class Played:
    """What became of a seed.

    Attributes:
        problems: What went wrong, by scene; empty if nothing did.
        contests: How often the rivals won and lost conditional writes.
    """

    problems: list[str] = field(default_factory=list)
    contests: Counter[str] = field(default_factory=Counter)


def play_seed(seed: int, scenes: tuple[str, ...], only: Schedule | None = None) -> Played:
    """Play a seed in some scenes, by name, or only some of its turns."""
    played = Played()
    for scene in SCENES:
        if scene.name not in scenes:
            continue
        try:
            with _without_log():
                seen = _played(scene, seed, only).seen
        except SimulationFailedError as error:
            played.problems.append(f"{scene.name}, {error}")
            continue
        if scene is RIVALS:
            names = [name for kind in WriteKind for name in (kind.won, kind.lost)]
            played.contests.update({name: seen.get(name, 0) for name in names})
    return played


def _played(scene: Scene, seed: int, only: Schedule | None = None) -> SimulationResult:
    parent = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"memwal-sim-{seed}-", dir=parent) as directory:
        return scene.play(seed, Path(directory), only)


def failure_of(scene: Scene, seed: int, only: Schedule | None = None) -> SimulationFailedError | None:
    """Play a seed in one scene, or only some of its turns, and return how it fails; None if it does not."""
    try:
        _played(scene, seed, only)
    except SimulationFailedError as error:
        return error
    return None


@dataclass
class PlayedSeeds:
    """What became of many seeds.

    Attributes:
        contests: How often the rivals of the seeds that passed won and lost conditional writes.
        is_ended: Whether somebody ended the run before all seeds had been played.
    """

    passed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    contests: Counter[str] = field(default_factory=Counter)
    is_ended: bool = False

    def add(self, seed: int, played: Played) -> None:
        """Count a seed."""
        self.contests.update(played.contests)
        (self.failed if played.problems else self.passed).append(seed)


def play_seeds(
    seeds: range, scenes: tuple[str, ...], jobs: int, console: Console, only: Schedule | None = None
) -> PlayedSeeds:
    """Play seeds in some scenes, lowest first, and print why one fails; Ctrl-C and SIGTERM end it early."""
    outcome = PlayedSeeds()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A fresh process per seed block: pylance must not be forked after it has started its threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin) as pool, _bar(console) as progress:
        task = progress.add_task("simulating", total=len(seeds))
        futures: dict[Future[Played], int] = {}
        try:
            # Here, for an end that is asked for meanwhile would wait for all that is submitted.
            for seed in seeds:
                futures[pool.submit(play_seed, seed, scenes, only)] = seed
            for future in as_completed(futures):
                played = future.result()
                outcome.add(futures[future], played)
                for problem in played.problems:
                    console.print(problem, markup=False, highlight=False, soft_wrap=True)
                progress.advance(task)
                done = len(outcome.passed) + len(outcome.failed)
                if not console.is_terminal and done % _TOLD_EVERY == 0:
                    console.print(f"{done} of {len(seeds)} played, {len(outcome.failed)} failed", highlight=False)
        except KeyboardInterrupt:
            outcome.is_ended = len(outcome.passed) + len(outcome.failed) < len(seeds)
            # Waiting for the seeds under way: a pool that is given up at once forgets to cancel the others.
            pool.shutdown(cancel_futures=True)
    return outcome


def _begin() -> None:
    """Let only the parent answer Ctrl-C, for the seeds under way are short; and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _bar(console: Console) -> Progress:
    return Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to play.")] = 20,
    first: Annotated[int | None, typer.Option(min=0, help="The first of them; a fresh one by default.")] = None,
    scene: Annotated[str, typer.Option(help="One of the scenes: everybody, rivals, strangers; all by default.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = multiprocessing.cpu_count(),
    only: Annotated[str, typer.Option(help="Some turns of one seed of one scene, as a failure names them.")] = "",
) -> None:
    """Simulate everybody at once, then rivals at the compare-and-swaps, from seeds that were never played before.

    Raises:
        Exit: Some seed failed, or somebody ended the run; the exit code is 1.
    """
    names = tuple(each.name for each in SCENES if scene in {"", each.name})
    if not names:
        raise typer.BadParameter(f"there is no scene {scene!r}", param_hint="--scene")
    schedule = _schedule_of(only, seeds, names)
    start = first if first is not None else system_rng().randrange(_FRESH_BELOW)
    console = Console()
    console.print(f"seeds {start} to {start + seeds - 1}; again: make sim FIRST={start} SEEDS={seeds}", highlight=False)
    outcome = play_seeds(range(start, start + seeds), names, jobs, console, schedule)
    if outcome.contests and outcome.passed and not only:
        console.print(_shown(outcome.contests, len(outcome.passed)))
    console.print(f"{len(outcome.passed)} passed, {len(outcome.failed)} failed")
    for seed in sorted(outcome.failed):
        console.print(f"again: make sim FIRST={seed} SEEDS=1", highlight=False)
    if not outcome.is_ended and not only:
        _tell_shortest(sorted(outcome.failed)[:_SHORTENED], names, console)
    if outcome.is_ended:
        left = sorted({*range(start, start + seeds)} - {*outcome.passed, *outcome.failed})
        console.print(f"ended early; on: make sim FIRST={left[0]} SEEDS={start + seeds - left[0]}", highlight=False)
    if outcome.failed or outcome.is_ended:
        raise typer.Exit(1)


def _schedule_of(only: str, seeds: int, scenes: tuple[str, ...]) -> Schedule | None:
    if not only:
        return None
    if seeds > 1 or len(scenes) > 1:
        raise typer.BadParameter("turns are those of one seed in one scene", param_hint="--only")
    try:
        return Schedule.parse(only)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from error


def _tell_shortest(seeds: list[int], scenes: tuple[str, ...], console: Console) -> None:
    """Print for each seed and scene that fails the fewest turns that fail of the same; Ctrl-C ends it."""
    with suppress(KeyboardInterrupt), _without_log():
        for seed in seeds:
            for scene in (each for each in SCENES if each.name in scenes):
                failure = failure_of(scene, seed)
                if failure is None:
                    continue
                console.print(f"looking for fewer turns of seed {seed} that fail so in the scene {scene.name}")
                schedule, failure = shortened(failure, partial(failure_of, scene, seed))
                again = f"make sim FIRST={seed} SEEDS=1 SCENE={scene.name} ONLY={schedule}"
                told = f"{show_count(len(schedule.turns), 'turn')} will do; again: {again}\n{failure}"
                console.print(told, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _without_log() -> Iterator[None]:
    """Log nothing up to errors, for people overwrite and restore tables here, which freezes them."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _shown(contests: Mapping[str, int], seeds: int) -> Table:
    table = Table("conditional write", "won", "lost to a rival", "lost in 100 seeds")
    for kind, lost in in_every_hundred(contests, seeds).items():
        table.add_row(kind.value, str(contests[kind.won]), str(contests[kind.lost]), str(lost))
    return table
