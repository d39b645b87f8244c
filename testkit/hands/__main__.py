"""``python -m testkit.hands``: plays histories, or shows one again."""

from __future__ import annotations

import logging
from typing import Annotated

import typer
from rich.console import Console

from testkit.hands.history import HistoryFailedError, play
from testkit.powercut.record import temporary_directory


def main(
    seed: Annotated[int | None, typer.Option(help="Only this history, step by step.")] = None,
    first: Annotated[int, typer.Option(help="The first of several.")] = 0,
    histories: Annotated[int, typer.Option(min=1, help="How many.")] = 50,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each.")] = 14,
) -> None:
    """Play histories, and show those that went wrong.

    Raises:
        Exit: Some history went wrong; the exit code is 1.
    """
    logging.disable(logging.CRITICAL)
    console = Console(soft_wrap=True)
    seeds = range(first, first + histories) if seed is None else (seed,)
    failed: list[int] = []
    for each in seeds:
        with temporary_directory() as directory:
            try:
                history = play(each, directory, steps=steps)
            except HistoryFailedError as error:
                failed.append(each)
                console.print(str(error), markup=False, highlight=False)
            else:
                if seed is not None:
                    console.print("\n".join(history.told), markup=False, highlight=False)
    console.print(
        f"{len(seeds) - len(failed)} histories were right, {len(failed)} were not {failed or ''}", markup=False
    )
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
