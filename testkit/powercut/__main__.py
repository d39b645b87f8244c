"""``python -m testkit.powercut``: cuts the power of a recorded process, or shows one cut again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from testkit.powercut.cuts import OPERATIONS, PowerCuts
from testkit.powercut.operations import SyncClass
from testkit.powercut.record import temporary_directory


def main(
    workload: Annotated[int, typer.Option(help="Seed of the recorded process.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Only this cut; it needs an operation.")] = None,
    operation: Annotated[list[str] | None, typer.Option(help="Only cuts in these operations.")] = None,
    cuts: Annotated[int, typer.Option(min=1, help="How many cuts.")] = 50,
    without: Annotated[list[SyncClass] | None, typer.Option(help="Drop the syncs of these classes.")] = None,
    recording: Annotated[Path | None, typer.Option(help="Read this recording, where it was made.")] = None,
) -> None:
    """Cut the power, and show each table that did not survive.

    Raises:
        Exit: Some table did not survive; the exit code is 1.
    """
    logging.disable(logging.WARNING)
    console = Console(soft_wrap=True)
    operations, dropped = tuple(operation or OPERATIONS), tuple(without or ())
    with temporary_directory() as own:
        power = PowerCuts(recording or own, workload, recorded=recording is not None)
        if seed is not None:
            made = [power.cut(seed, each, without=dropped) for each in operations]
        else:
            made = list(power.many(cuts, operations, without=dropped))
    failed = [each for each in made if each.problems]
    for each in failed or (made if seed is not None else []):
        console.print(str(each), markup=False, highlight=False)
    console.print(f"{len(made) - len(failed)} tables survived, {len(failed)} did not")
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
