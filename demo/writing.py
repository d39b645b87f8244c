"""One writer process of the demonstration: replay the stream and write the regions it owns.

Run as ``python -m demo.writing URI --part 0 --parts 2``. Progress goes to standard
output, one JSON object a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import typer

from demo.flights.source import find_flight_data, flights_of_first_days, load_flights
from demo.flights.stream import flight_events
from memwal_core.base_table import BaseTable
from memwal_core.region.spec import RegionValue
from memwal_core.settings import Settings, WriterSettings, load_settings
from memwal_core.writer import TableWriter

MEMTABLE_ROWS = 20_000
"""Small, so that a year gives about fifty flushed MemTables to merge."""

_REPORT_EVERY_BATCHES = 10


@dataclass(frozen=True, slots=True)
class WritingProgress:
    """What a writer process has done so far.

    Attributes:
        rows: Rows of its own regions written durably.
        generations: Flushed MemTables of its own regions.
        day: Day of the stream it has reached, ISO.
        finished: Whether the stream is at its end and everything is flushed.
    """

    rows: int
    generations: int
    day: str
    finished: bool


def owns(value: RegionValue, part: int, parts: int) -> bool:
    """Return whether a writer process owns the region of a bucket."""
    bucket = value[0]
    return isinstance(bucket, int) and bucket % parts == part


def write_part(
    uri: str, part: int, parts: int, days: int | None, settings: Settings, report: Callable[[WritingProgress], None]
) -> WritingProgress:
    """Replay the stream and write the rows of this process's regions.

    Args:
        uri: The demonstration's table.
        part: Number of this process, from 0.
        parts: Number of processes.
        days: Only flights of the first days of the year; all if None.
        settings: Values.
        report: Called now and then, and at the end.

    Returns:
        The last report.
    """
    flights = load_flights(find_flight_data())
    if days is not None:
        flights = flights_of_first_days(flights, days)
    rows, day = 0, ""
    with TableWriter.open(BaseTable.open(uri, settings=settings), accept=lambda value: owns(value, part, parts)) as out:
        for batch in flight_events(flights):
            rows += out.put(batch.rows).rows
            day = batch.day.isoformat()
            if batch.sequence % _REPORT_EVERY_BATCHES == 0:
                report(WritingProgress(rows, _generations(out), day, finished=False))
        out.flush()
        last = WritingProgress(rows, _generations(out), day, finished=True)
    report(last)
    return last


def _generations(out: TableWriter) -> int:
    return sum(writer.memtable.generation - 1 for writer in out.writers.values())


def _print(progress: WritingProgress) -> None:
    sys.stdout.write(json.dumps(asdict(progress)) + "\n")
    sys.stdout.flush()


def run(uri: str, part: int = 0, parts: int = 1, days: int | None = None) -> None:
    """Write one part of the stream; see ``write_part``."""
    loaded = load_settings()
    writer = WriterSettings(**{**loaded.writer.model_dump(), "max_memtable_rows": MEMTABLE_ROWS})
    write_part(uri, part, parts, days, loaded.model_copy(update={"writer": writer}), _print)


if __name__ == "__main__":
    typer.run(run)
