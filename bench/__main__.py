"""``python -m bench``: run comparisons, and turn results into a page."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.catalog import COMPARISONS
from bench.harness import CaseResult, Comparison, run_case
from bench.machine import machine_facts
from bench.page import CHARTS, write_page
from bench.report import Circumstances, document, facts_table, result_table, updated
from memwal_core.clock import Clock, SystemClock

RESULTS = Path(__file__).parent / "results"
"""Default place of the scratch files: on the disk of the project, since a temporary directory may be in memory."""

DOCS = Path(__file__).parents[1] / "docs"

_ROUNDS = 5
_FULL_ROUNDS = 15
_BUDGET_S = 4.0
_FULL_BUDGET_S = 12.0

app = typer.Typer(help="Comparisons of speed.", no_args_is_help=True, add_completion=False)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help=f"Comparisons to run: {', '.join(COMPARISONS)}.")] = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Larger sizes, more rounds, all comparisons.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every sample here, after each case.")] = None,
    scratch: Annotated[Path, typer.Option(help="Where the tables are made and removed.")] = RESULTS,
    update: Annotated[
        bool, typer.Option("--update", help="Keep what the file has of comparisons not run now.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no further case after so many minutes; what is left out is named.")
    ] = None,
) -> None:
    """Compare ways of doing the same work on this machine."""
    chosen = names or [name for name, comparison in COMPARISONS.items() if full or comparison.in_short]
    if unknown := [name for name in chosen if name not in COMPARISONS]:
        raise typer.BadParameter(f"no such comparison: {', '.join(unknown)}; there are {', '.join(COMPARISONS)}")
    logging.basicConfig(level=logging.ERROR)
    scratch.mkdir(parents=True, exist_ok=True)
    before = json.loads(json_file.read_text()) if update and json_file is not None and json_file.exists() else None
    output = _Output(json_file, before)
    session = _Session(full=full, output=output, scratch=scratch, minutes=minutes, clock=SystemClock())
    session.run([COMPARISONS[name] for name in chosen])
    if session.failed:
        raise typer.Exit(1)


@app.command()
def report(
    json_file: Annotated[Path, typer.Argument(help="Results of a run.")] = DOCS / "benchmarks" / "full.json",
    *,
    page: Annotated[Path, typer.Option(help="The page to write.")] = DOCS / "benchmarks.md",
    charts: Annotated[Path, typer.Option(help="Directory of its charts.")] = DOCS / CHARTS,
) -> None:
    """Write the page and the charts from results."""
    written = write_page(json.loads(json_file.read_text()), page, charts)
    typer.echo(f"wrote {page} and {len(written) - 1} charts")


@dataclass(frozen=True, slots=True)
class _Output:
    """Where results are stored, and the document that they update."""

    file: Path | None
    before: dict[str, Any] | None

    def store(self, found: dict[str, Any]) -> None:
        if self.file is None:
            return
        if self.before is not None:
            found = updated(self.before, found, list(COMPARISONS))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(found, indent=1) + "\n")


class _Session:
    """One run: what was measured so far, shown and stored as it comes."""

    def __init__(self, *, full: bool, output: _Output, scratch: Path, minutes: float | None, clock: Clock) -> None:
        self._full = full
        self._output = output
        self._scratch = scratch
        self._clock = clock
        self._began = clock.monotonic()
        self._started = clock.now().isoformat(timespec="seconds")
        self._limit_s = None if minutes is None else minutes * 60
        self._facts = machine_facts(scratch)
        self._console = Console()
        self._results: dict[Comparison, list[CaseResult]] = {}
        self._circumstances: dict[Comparison, Circumstances] = {}
        self._left_out: list[str] = []
        self.failed: list[str] = []

    def run(self, comparisons: list[Comparison]) -> None:
        self._console.print(facts_table(self._facts))
        with tempfile.TemporaryDirectory(dir=self._scratch, ignore_cleanup_errors=True) as directory:
            for comparison in comparisons:
                self._compare(comparison, Path(directory))
        for what, names in (("failed", self.failed), ("left out for lack of time", self._left_out)):
            if names:
                self._console.print(f"{what}: {', '.join(names)}")
        self._console.print(f"{self._elapsed_s() / 60:.1f} minutes in all")

    def _compare(self, comparison: Comparison, directory: Path) -> None:
        began = self._clock.monotonic()
        now = self._clock.now().isoformat(timespec="seconds")
        self._circumstances[comparison] = Circumstances(now, round(os.getloadavg()[0], 2))
        try:
            with comparison.around():
                self._measure(comparison, directory)
        except Exception as error:  # noqa: BLE001 - one comparison must not lose the others
            self.failed.append(f"{comparison.name} ({error})")
        if comparison in self._results:
            self._console.print(result_table(comparison, self._results[comparison]))
            took_s = self._clock.monotonic() - began
            self._console.print(f"{comparison.name} took {took_s:.0f} s, {self._elapsed_s() / 60:.1f} minutes so far")

    def _measure(self, comparison: Comparison, directory: Path) -> None:
        for case in comparison.cases(self._full):
            if self._limit_s is not None and self._elapsed_s() > self._limit_s:
                self._left_out.append(f"{comparison.name}: {case.name}")
                continue
            with self._console.status(f"{comparison.name}: {case.name}"):
                result = run_case(
                    comparison,
                    case,
                    rounds=self._rounds(comparison),
                    scratch=directory,
                    clock=self._clock,
                    budget_s=_FULL_BUDGET_S if self._full else _BUDGET_S,
                )
            self._results.setdefault(comparison, []).append(result)
            self.failed += [f"{comparison.name}: {case.name}: {arm.name}" for arm in result.arms if arm.error]
            self._store()

    def _rounds(self, comparison: Comparison) -> int:
        if self._full:
            return comparison.rounds or _FULL_ROUNDS
        # What starts processes takes seconds per trial, and the short form shall be short.
        return min(comparison.rounds or _ROUNDS, _ROUNDS if comparison.warm_up else 2)

    def _store(self) -> None:
        found = document(
            self._facts, started=self._started, full=self._full, results=self._results, began=self._circumstances
        )
        found["minutes"] = round(self._elapsed_s() / 60, 1)
        found["left_out"] = self._left_out
        self._output.store(found)

    def _elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began


if __name__ == "__main__":
    app()
