"""Running many seeds on all processors, and showing what fails."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from memwal_core.rng import system_rng
from testkit.simulation.contests import WriteKind, in_every_hundred
from testkit.simulation.scenes import RIVALS, SCENES, Scene
from testkit.simulation.simulate import SimulationFailedError

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the tables of a seed live for seconds and need no disk
_FRESH_BELOW = 10**9


@dataclass
class Played:
    """What became of a seed.

    Attributes:
        problems: What went wrong, by scene; empty if nothing did.
        contests: How often the rivals won and lost conditional writes.
    """

    problems: list[str] = field(default_factory=list)
    contests: Counter[str] = field(default_factory=Counter)


def play_seed(seed: int, scenes: tuple[str, ...]) -> Played:
    """Play a seed in some scenes, by name."""
    logging.disable(logging.ERROR)  # Freezes, too: people overwrite and restore tables here.
    played = Played()
    for scene in SCENES:
        if scene.name in scenes:
            _play(scene, seed, played)
    return played


def _play(scene: Scene, seed: int, played: Played) -> None:
    parent = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"memwal-sim-{seed}-", dir=parent) as directory:
        try:
            seen = scene.play(seed, Path(directory)).seen
        except SimulationFailedError as error:
            played.problems.append(f"{scene.name}, {error}")
            return
    if scene is RIVALS:
        names = [name for kind in WriteKind for name in (kind.won, kind.lost)]
        played.contests.update({name: seen.get(name, 0) for name in names})


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


def play_seeds(seeds: range, scenes: tuple[str, ...], jobs: int, console: Console) -> PlayedSeeds:
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
                futures[pool.submit(play_seed, seed, scenes)] = seed
            for future in as_completed(futures):
                played = future.result()
                outcome.add(futures[future], played)
                for problem in played.problems:
                    console.print(problem, markup=False, highlight=False)
                progress.advance(task)
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
) -> None:
    """Simulate everybody at once, then rivals at the compare-and-swaps, from seeds that were never played before.

    Raises:
        Exit: Some seed failed, or somebody ended the run; the exit code is 1.
    """
    names = tuple(each.name for each in SCENES if scene in {"", each.name})
    if not names:
        raise typer.BadParameter(f"there is no scene {scene!r}", param_hint="--scene")
    start = first if first is not None else system_rng().randrange(_FRESH_BELOW)
    console = Console()
    console.print(f"seeds {start} to {start + seeds - 1}; again: make sim FIRST={start} SEEDS={seeds}", highlight=False)
    outcome = play_seeds(range(start, start + seeds), names, jobs, console)
    if outcome.contests:
        console.print(_shown(outcome.contests, len(outcome.passed)))
    console.print(f"{len(outcome.passed)} passed, {len(outcome.failed)} failed")
    for seed in sorted(outcome.failed):
        console.print(f"again: make sim FIRST={seed} SEEDS=1", highlight=False)
    if outcome.is_ended:
        left = sorted({*range(start, start + seeds)} - {*outcome.passed, *outcome.failed})
        console.print(f"ended early; on: make sim FIRST={left[0]} SEEDS={start + seeds - left[0]}", highlight=False)
    if outcome.failed or outcome.is_ended:
        raise typer.Exit(1)


def _shown(contests: Mapping[str, int], seeds: int) -> Table:
    table = Table("conditional write", "won", "lost to a rival", "lost in 100 seeds")
    for kind, lost in in_every_hundred(contests, seeds).items():
        table.add_row(kind.value, str(contests[kind.won]), str(contests[kind.lost]), str(lost))
    return table
