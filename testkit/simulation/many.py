"""Running many seeds on all processors, and showing what fails."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
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
    logging.disable(logging.WARNING)
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


def play_seeds(seeds: range, scenes: tuple[str, ...], jobs: int, console: Console) -> tuple[list[int], Counter[str]]:
    """Play seeds in some scenes; return which failed, after printing why, and the contests of the others."""
    failed: list[int] = []
    contests: Counter[str] = Counter()
    # A fresh process per seed block: pylance must not be forked after it has started its threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool, Progress(console=console) as progress:
        task = progress.add_task("simulating", total=len(seeds))
        futures: dict[Future[Played], int] = {pool.submit(play_seed, seed, scenes): seed for seed in seeds}
        for future in as_completed(futures):
            played = future.result()
            contests.update(played.contests)
            if played.problems:
                failed.append(futures[future])
                for problem in played.problems:
                    console.print(problem, markup=False, highlight=False)
            progress.advance(task)
    return sorted(failed), contests


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to play.")] = 20,
    first: Annotated[int | None, typer.Option(min=0, help="The first of them; a fresh one by default.")] = None,
    scene: Annotated[str, typer.Option(help="One of the scenes: everybody, rivals, strangers; all by default.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = multiprocessing.cpu_count(),
) -> None:
    """Simulate everybody at once, then rivals at the compare-and-swaps, from seeds that were never played before.

    Raises:
        Exit: Some seed failed; the exit code is 1.
    """
    names = tuple(each.name for each in SCENES if scene in {"", each.name})
    if not names:
        raise typer.BadParameter(f"there is no scene {scene!r}", param_hint="--scene")
    start = first if first is not None else system_rng().randrange(_FRESH_BELOW)
    console = Console()
    console.print(f"seeds {start} to {start + seeds - 1}; again: make sim FIRST={start} SEEDS={seeds}", highlight=False)
    failed, contests = play_seeds(range(start, start + seeds), names, jobs, console)
    if contests:
        console.print(_shown(contests, seeds - len(failed)))
    console.print(f"{seeds - len(failed)} passed, {len(failed)} failed")
    for seed in failed:
        console.print(f"again: make sim FIRST={seed} SEEDS=1", highlight=False)
    if failed:
        raise typer.Exit(1)


def _shown(contests: Mapping[str, int], seeds: int) -> Table:
    table = Table("conditional write", "won", "lost to a rival", "lost in 100 seeds")
    for kind, lost in in_every_hundred(contests, seeds).items():
        table.add_row(kind.value, str(contests[kind.won]), str(contests[kind.lost]), str(lost))
    return table
