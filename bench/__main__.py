"""``python -m bench``: run comparisons and show them."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.harness import CaseResult, Comparison, run_case
from bench.machine import machine_facts
from bench.maintenance import GC_PLANS, MERGE_MEMORY, SNAPSHOT_REQUESTS, SNAPSHOTS
from bench.merge import MERGE_STRATEGIES, MERGES
from bench.puts import PUTS
from bench.report import document, facts_table, result_table
from memwal_core.clock import SystemClock

COMPARISONS: dict[str, Comparison] = {
    comparison.name: comparison
    for comparison in (PUTS, MERGES, MERGE_STRATEGIES, SNAPSHOTS, SNAPSHOT_REQUESTS, GC_PLANS, MERGE_MEMORY)
}
"""Everything that can be compared, by name."""

RESULTS = Path(__file__).parent / "results"
"""Default place of the scratch files: on the disk of the project, since a temporary directory may be in memory."""

_ROUNDS = 5
_FULL_ROUNDS = 15


def run(
    names: Annotated[list[str] | None, typer.Argument(help=f"Comparisons to run: {', '.join(COMPARISONS)}.")] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="More operations and rounds.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write every sample here.")] = None,
    scratch: Annotated[Path, typer.Option(help="Where the tables are made and removed.")] = RESULTS,
) -> None:
    """Compare ways of doing the same work on this machine."""
    chosen = names or list(COMPARISONS)
    if unknown := [name for name in chosen if name not in COMPARISONS]:
        raise typer.BadParameter(f"no such comparison: {', '.join(unknown)}; there are {', '.join(COMPARISONS)}")
    logging.basicConfig(level=logging.ERROR)
    console = Console()
    clock = SystemClock()
    started = clock.now()
    scratch.mkdir(parents=True, exist_ok=True)
    facts = machine_facts(scratch)
    console.print(facts_table(facts))
    results: dict[Comparison, list[CaseResult]] = {}
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        for comparison in (COMPARISONS[name] for name in chosen):
            results[comparison] = []
            for case in comparison.cases(full):
                with console.status(f"{comparison.name}: {case.name}"):
                    rounds = comparison.rounds or (_FULL_ROUNDS if full else _ROUNDS)
                    result = run_case(comparison, case, rounds=rounds, scratch=Path(directory), clock=clock)
                results[comparison].append(result)
            console.print(result_table(comparison, results[comparison]))
    if json_file is not None:
        written = document(facts, started=started.isoformat(timespec="seconds"), full=full, results=results)
        json_file.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(run)
