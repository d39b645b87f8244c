"""``python -m testkit.fuzz``: attacks tables with hostile bytes, or shows one attack again."""

from __future__ import annotations

import collections
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.clock import SystemClock
from testkit.fuzz.case import cases
from testkit.fuzz.decoders import DECODERS
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.watch import run_cases


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
    harm: collections.Counter[str] = collections.Counter()
    clock = SystemClock()
    began = clock.monotonic()
    with tempfile.TemporaryDirectory(prefix="memwal-fuzz-") as directory:
        for case, findings in run_cases(chosen, Path(directory)):
            for finding in findings:
                console.print(str(finding), markup=False, highlight=False)
            harm[case.kind] += bool(findings)
    console.print(f"{len(chosen)} cases in {clock.monotonic() - began:.0f} s, {sum(harm.values())} did harm")
    for name, times in harm.most_common():
        if times:
            console.print(f"  {name}: {times}", markup=False)
    if harm.total():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
