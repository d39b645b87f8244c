"""The live writers of the fleet: processes that write several tables each; one goes on where a killed one ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from memwal_core.rng import Rng, system_rng
from memwal_core.settings import load_settings
from memwal_core.writer import TableWriter
from testkit.fleet.batches import batch_of
from testkit.fleet.tables import FleetTable
from testkit.processes.start import start_process

_PAUSES = (0.5, 1.5)
_JOIN_S = 300.0

_log = logging.getLogger(__name__)


class FleetWriters:
    """Processes that write all tables which have a live writer.

    Args:
        tables: Which; others are passed over.
        processes: How many share them.
        notes: Directory where each table's written batches are counted.
    """

    def __init__(self, tables: Sequence[FleetTable], processes: int, notes: Path) -> None:
        """Start them."""
        self._notes, self.processes = notes, processes
        notes.mkdir(exist_ok=True)
        written = [table for table in tables if table.batch_rows]
        self._shares = [written[first::processes] for first in range(processes)]
        self._running = [self._start(share) for share in self._shares]

    def written(self, table: FleetTable) -> int:
        """Return how many batches of a table were acknowledged."""
        return _count(self._notes / table.name)

    def kill(self, number: int) -> None:
        """Kill a process where it is; another one goes on."""
        process, connection = self._running[number]
        process.kill()
        process.join()
        connection.close()
        self._running[number] = self._start(self._shares[number])

    def close(self) -> None:
        """Let all processes finish what they write, and flush it.

        Raises:
            RuntimeError: One ended with an error.
        """
        for _, connection in self._running:
            connection.send("end")
        for process, connection in self._running:
            process.join(_JOIN_S)
            connection.close()
        if failed := [process.exitcode for process, _ in self._running if process.exitcode]:
            raise RuntimeError(f"writers ended with {failed}")

    def end(self) -> None:
        """Kill all processes."""
        for process, _ in self._running:
            process.kill()

    def dead(self) -> int:
        """Return how many processes have ended by themselves."""
        return sum(not process.is_alive() for process, _ in self._running)

    def _start(self, share: Sequence[FleetTable]) -> tuple[ForkServerProcess, Connection]:
        return start_process(_write_tables, tuple(share), str(self._notes), duplex=True)


def _write_tables(tables: Sequence[FleetTable], notes: str, connection: Connection) -> None:
    logging.basicConfig(level=logging.WARNING)
    ended = threading.Event()
    with ThreadPoolExecutor(len(tables)) as threads:
        written = [threads.submit(_write, table, Path(notes) / table.name, ended, system_rng()) for table in tables]
        for each in written:
            each.add_done_callback(_end_if_failed)
        connection.recv()
        ended.set()


def _end_if_failed(written: Future[None]) -> None:
    if (error := written.exception()) is not None:
        _log.critical("a writer failed", exc_info=error)
        os._exit(1)


def _write(table: FleetTable, note: Path, ended: threading.Event, rng: Rng) -> None:
    number, settings = _count(note), load_settings()
    # The writer before this one is known to be dead: it was this process's forerunner.
    with TableWriter.open(table.open().with_settings(settings), takeover="fence") as writer:
        while not ended.wait(table.pause_s * rng.uniform(*_PAUSES)):
            batch = batch_of(table.name, number, table.batch_rows)
            (writer.delete if batch.value is None else writer.put)(batch.rows())
            number += 1
            with note.open("ab") as count:
                count.write(b".")
        writer.flush()


def _count(note: Path) -> int:
    """Return the size of a note, which grows by one byte with each batch: it is never torn."""
    return note.stat().st_size if note.exists() else 0
