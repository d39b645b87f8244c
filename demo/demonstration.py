"""The demonstration from the empty table to the comparison, step by step."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Protocol

import lance

from demo.airflow import (
    Checkout,
    airflow_environment,
    configure_spark,
    essence,
    find_java,
    prepare_airflow,
    register_tables,
    run_merge_dag,
)
from demo.comparison import Difference, compare
from demo.directory import DemoDirectory
from demo.flights.expectation import expected_flights
from demo.flights.source import FLIGHTS_SCHEMA, KEY_COLUMNS, find_flight_data, flights_of_first_days, load_flights
from demo.processes import Command, Finished, run_all
from demo.writing import WritingProgress
from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.errors import MemwalError
from memwal_core.observe.status import TableStatus
from memwal_core.region.spec import multi_bucket_spec
from memwal_core.settings import Settings
from memwal_core.table import Table

BUCKETS = 8
YEAR_DAYS = 365

_SPEC_ID = 1
_FIRST_DAY = date(2012, 12, 31)  # the schedule of New Year's Day is published the day before
_SHOWN_LOG_LINES = 15


class DemoFailedError(MemwalError):
    """A step of the demonstration did not do what it must. Read the log that is named."""


class DemoDisplay(Protocol):
    """Shows what happens; must return quickly."""

    def step(self, title: str) -> None:
        """A step begins."""
        ...

    def note(self, text: str) -> None:
        """Something worth a line happened."""
        ...

    def writing(self, part: int, progress: WritingProgress, fraction: float) -> None:
        """A writer process reported; ``fraction`` is how much of the stream it has seen."""
        ...

    def status(self, status: TableStatus) -> None:
        """The table looks like this."""
        ...


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to demonstrate.

    Attributes:
        directory: Where; empty but for its own directories.
        checkout: Where the DAGs and jobs are.
        days: Flights of the first days of the year.
        writers: Writer processes, at most one per bucket.
    """

    directory: DemoDirectory
    checkout: Checkout
    days: int = YEAR_DAYS
    writers: int = 2


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What was done.

    Attributes:
        rows_written: Upserts that writers acknowledged.
        generations: Flushed MemTables that were merged.
        difference: The table against the independent expectation.
        steps: Title and seconds, in order.
        processes: Every program that ran, in order.
    """

    rows_written: int
    generations: int
    difference: Difference
    steps: tuple[tuple[str, float], ...]
    processes: tuple[Finished, ...]


def run_demo(
    plan: DemoPlan, settings: Settings, clock: Clock, display: DemoDisplay, environment: Mapping[str, str]
) -> DemoReport:
    """Run the demonstration.

    Args:
        plan: What to do, and where.
        settings: Values for what runs in this process; other processes read theirs from ``environment``.
        clock: Measures and waits.
        display: Shows what happens.
        environment: Variables for the processes that are started.

    Returns:
        What was done; only ``difference`` can still be bad.

    Raises:
        DemoFailedError: A step failed or did not do what it must.
        InvalidRequestError: The machine lacks something that the demonstration needs.
    """
    return _Demo(plan, settings, clock, display, environment).run()


def writer_commands(plan: DemoPlan, environment: Mapping[str, str]) -> list[Command]:
    """Return the command of each writer process."""
    module = (sys.executable, "-m", "demo.writing", str(plan.directory.table))
    return [
        Command(
            f"writer-{part}",
            (*module, "--part", str(part), "--parts", str(plan.writers), "--days", str(plan.days)),
            environment,
        )
        for part in range(plan.writers)
    ]


def stream_fraction(day: str, days: int) -> float:
    """Return how much of the stream lies behind a writer.

    Args:
        day: Day that it has reached, ISO.
        days: Days whose flights are replayed.

    Returns:
        From 0 to 1.
    """
    # One day before the first flights and one after the last have events, too.
    return min(1.0, max(0.0, (date.fromisoformat(day) - _FIRST_DAY).days / (days + 1)))


@dataclass(slots=True)
class _Demo:
    plan: DemoPlan
    settings: Settings
    clock: Clock
    display: DemoDisplay
    environment: Mapping[str, str]
    steps: list[tuple[str, float]] = field(default_factory=list)
    processes: list[Finished] = field(default_factory=list)
    last_progress: dict[str, WritingProgress] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return str(self.plan.directory.table)

    def run(self) -> DemoReport:
        java_home = find_java(self.plan.checkout, self.environment)
        with self._step(f"Create the table, {BUCKETS} bucket regions"):
            self._create_table()
        with self._step(f"Write the stream, {self.plan.writers} processes"):
            self._write()
        with self._step("Status before the merge"):
            before = self._status()
        airflow = airflow_environment(self.plan.directory, self.plan.checkout, java_home, self.environment)
        with self._step("Prepare an Airflow in the directory"):
            configure_spark(self.plan.directory)
            register_tables(self.plan.directory, {"flights": self.table})
            self._execute([prepare_airflow(airflow)], _ignore)
        with self._step("Merge: run the DAG"):
            self._execute([run_merge_dag(airflow, self.table, name="merge-dag")], self._show_airflow)
        with self._step("Merge again: nothing is left to do"):
            self._merge_again(airflow)
        with self._step("Status after the merge"):
            after = self._status()
            self._require(after.merge_lag_generations == 0, "generations are left", left=after.merge_lag_generations)
        with self._step("Compare with what the source says, row for row"):
            difference = self._compare()
            self.display.note(str(difference))
        return DemoReport(
            rows_written=sum(progress.rows for progress in self.last_progress.values()),
            generations=before.merge_lag_generations,
            difference=difference,
            steps=tuple(self.steps),
            processes=tuple(self.processes),
        )

    def _create_table(self) -> None:
        lance.write_dataset(FLIGHTS_SCHEMA.empty_table(), self.table)
        table = BaseTable.open(self.table, settings=self.settings)
        spec = multi_bucket_spec(_SPEC_ID, KEY_COLUMNS, table.state().field_ids, BUCKETS, field_id="bucket")
        table.create_mem_wal_index([spec])

    def _write(self) -> None:
        commands = writer_commands(self.plan, self.environment)
        parts = {command.name: part for part, command in enumerate(commands)}

        def show(command: Command, line: str) -> None:
            progress = _progress(line)
            if progress is not None:
                self.last_progress[command.name] = progress
                fraction = 1.0 if progress.finished else stream_fraction(progress.day, self.plan.days)
                self.display.writing(parts[command.name], progress, fraction)

        self._execute(commands, show)
        unfinished = [name for name in parts if not (seen := self.last_progress.get(name)) or not seen.finished]
        self._require(not unfinished, "a writer did not reach the end of the stream", writers=unfinished)

    def _status(self) -> TableStatus:
        status = Table.open(self.table, settings=self.settings).status()
        self.display.status(status)
        return status

    def _merge_again(self, airflow: Mapping[str, str]) -> None:
        before = BaseTable.open(self.table).state().version
        self._execute([run_merge_dag(airflow, self.table, name="merge-dag-again")], self._show_airflow)
        after = BaseTable.open(self.table).state().version
        self._require(before == after, "a merge with nothing to do changed the table", before=before, after=after)
        self.display.note(f"the table is still at version {after}")

    def _compare(self) -> Difference:
        flights = flights_of_first_days(load_flights(find_flight_data()), self.plan.days)
        return compare(expected_flights(flights), lance.dataset(self.table).to_table(), KEY_COLUMNS)

    def _show_airflow(self, _: Command, line: str) -> None:
        if text := essence(line):
            self.display.note(text)

    def _execute(self, commands: Sequence[Command], on_line: Callable[[Command, str], None]) -> None:
        finished = run_all(commands, self.plan.directory.logs, self.clock, on_line)
        self.processes.extend(finished)
        for each in finished:
            self._require(
                each.exit_code == 0,
                "a program failed",
                program=each.name,
                exit_code=each.exit_code,
                log=str(each.log),
                last_lines=_last_lines(each.log),
            )

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self.display.step(title)
        began = self.clock.monotonic()
        yield
        self.steps.append((title, self.clock.monotonic() - began))

    def _require(self, holds: bool, otherwise: str, **facts: object) -> None:
        if not holds:
            raise DemoFailedError(otherwise, remedy=f"look into {self.plan.directory.logs}{os.sep}", **facts)


def _progress(line: str) -> WritingProgress | None:
    if not line.startswith("{"):
        return None
    return WritingProgress(**json.loads(line))


def _ignore(_: Command, __: str) -> None:
    """Leave a program's output to its log."""


def _last_lines(log: Path) -> str:
    return "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-_SHOWN_LOG_LINES:])
