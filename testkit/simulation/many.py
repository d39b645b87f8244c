"""Running many seeds on all processors, and showing what fails."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from testkit.simulation.simulate import SimulationFailedError, simulate
from testkit.simulation.world import Chances

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the tables of a seed live for seconds and need no disk
_ROUGH = Chances(interleave=0.1, fail=0.03, crash=0.02, lance=0.06)


def run_seed(seed: int, turns: int, *, rough: bool) -> str | None:
    """Run one seed and return what went wrong, or None."""
    logging.disable(logging.WARNING)
    parent = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=f"memwal-sim-{seed}-", dir=parent) as directory:
        try:
            simulate(seed, Path(directory), turns=turns, chances=_ROUGH if rough else Chances())
        except SimulationFailedError as error:
            return str(error)
    return None


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 20,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    turns: Annotated[int, typer.Option(min=1, help="Turns of each run.")] = 60,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = multiprocessing.cpu_count(),
) -> None:
    """Simulate everybody at once; every third seed with far more faults than usual.

    Raises:
        Exit: Some seed failed; the exit code is 1.
    """
    console = Console()
    console.print(f"seeds {first} to {first + seeds - 1}, {turns} turns each")
    failed: list[int] = []
    # A fresh process per seed block: pylance must not be forked after it has started its threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool, Progress(console=console) as progress:
        task = progress.add_task("simulating", total=seeds)
        futures: dict[Future[str | None], int] = {
            pool.submit(run_seed, seed, turns, rough=seed % 3 == 0): seed for seed in range(first, first + seeds)
        }
        for future in as_completed(futures):
            problem = future.result()
            if problem is not None:
                failed.append(futures[future])
                console.print(problem, markup=False, highlight=False)
            progress.advance(task)
    console.print(f"{seeds - len(failed)} passed, {len(failed)} failed")
    if failed:
        console.print(
            f"replay: MEMWAL_SIM_SEEDS={','.join(map(str, sorted(failed)))} make test PYTEST_ARGS=tests/simulation"
        )
        raise typer.Exit(1)
