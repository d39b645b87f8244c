"""``python -m testkit.fleet``: an hour of a fleet on this machine, and what came of it."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.rng import system_rng
from testkit.fleet.hour import Hour
from testkit.fleet.servers import SETTINGS
from testkit.rng import seeded_rng

_FRESH_BELOW = 10**9


def main(
    minutes: Annotated[float, typer.Option(min=1, help="How long the fleet is written and disturbed.")] = 60,
    sound: Annotated[int, typer.Option(min=2, help="Sound tables; the broken ones come on top.")] = 23,
    seed: Annotated[int | None, typer.Option(help="Who is killed, and when.")] = None,
    directory: Annotated[Path | None, typer.Option(help="An empty directory, which is kept.")] = None,
) -> None:
    """Write, maintain, watch, read and disturb a fleet, and show what should not have happened.

    Raises:
        Exit: Something should not have happened; the exit code is 1.
    """
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("memwal").setLevel(logging.CRITICAL)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    os.environ.update(SETTINGS)
    chosen = system_rng().randrange(_FRESH_BELOW) if seed is None else seed
    console.print(f"seed {chosen}")
    with tempfile.TemporaryDirectory(prefix="memwal-fleet-") as own:
        place = directory or Path(own)
        place.mkdir(exist_ok=True)
        # Whoever asks this process to end leaves no server behind.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        outcome = Hour(place, sound, seeded_rng(chosen), console.print).play(minutes)
    for line in outcome.lines():
        console.print(line)
    if outcome.problems:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
