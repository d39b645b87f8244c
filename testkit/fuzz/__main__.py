"""``python -m testkit.fuzz``: attacks tables with hostile bytes, or shows one attack again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.clock import SystemClock
from testkit.fuzz.case import cases
from testkit.fuzz.decoders import DECODERS
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.watch import WatchedWorker

_REPORTED = 50


def main(
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many cases.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Only this case; of a kind, or of the seed's own.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only these kinds of files.")] = None,
    decoders: Annotated[bool, typer.Option("--decoders", help="Only the decoders, without tables.")] = False,
) -> None:
    """Run cases, and show those that did harm.

    Raises:
        Exit: Some did; the exit code is 1.
    """
    console = Console(soft_wrap=True)
    known = DECODERS if decoders else KINDS
    if kind and set(kind) - known.keys():
        raise typer.BadParameter(f"kinds are {', '.join(known)}")
    seeds = range(first, first + count) if seed is None else range(seed, seed + 1)
    chosen = cases(seeds, kind or list(known), decoder_only=decoders)
    clock = SystemClock()
    began, harmful = clock.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="memwal-fuzz-") as directory, WatchedWorker(Path(directory)) as worker:
        for number, case in enumerate(chosen, 1):
            found = worker.run(case)
            harmful += bool(found)
            for each in found:
                console.print(str(each), markup=False, highlight=False)
            if number % _REPORTED == 0 or number == len(chosen):
                spent = clock.monotonic() - began
                console.print(
                    f"{number} cases in {spent:.0f} s: {harmful} did harm, Lance ended the process in "
                    f"{worker.ended_by_lance}"
                )
    if harmful:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
