"""An hour in the life of a fleet: written, maintained, watched, read and disturbed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle
from pathlib import Path

from memwal_core.errors import ConflictError, MemwalError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.rng import Rng
from memwal_core.table import Table
from testkit.fleet.batches import FleetModel
from testkit.fleet.disturbing import Disturber
from testkit.fleet.outcome import FleetOutcome
from testkit.fleet.servers import FleetServers
from testkit.fleet.tables import FleetTable, make_fleet
from testkit.fleet.watching import Watching
from testkit.fleet.writers import FleetWriters
from testkit.processes.spark_cluster import CLOCK, until
from testkit.s3_server import s3_server

CYCLE = "memwal_maintain"
WRITERS = 3

_LOOK_EVERY_S = 10.0
_PAGE_EVERY = 6
"""Looks between two of the page, which reads all tables."""
_LONGEST_WAIT_S = 900.0
"""A job that dies keeps its lease for some minutes."""

_log = logging.getLogger(__name__)


class Hour:
    """Plays it.

    Args:
        directory: An empty one.
        sound: How many sound tables; the broken ones come on top.
        rng: Who is killed, and when.
        told: Is called with a line about everything that happens.
    """

    def __init__(self, directory: Path, sound: int, rng: Rng, told: Callable[[str], None] = _log.info) -> None:
        """Make the tables and start everything as ``play`` begins, not earlier."""
        self._directory, self._sound, self._rng, self._say = directory, sound, rng, told
        self._began = CLOCK.monotonic()

    def play(self, minutes: float) -> FleetOutcome:
        """Let so many minutes pass, then let the writers end and everything be merged, and compare all rows."""
        with ExitStack() as cleanup:
            s3 = cleanup.enter_context(s3_server())
            tables = make_fleet(self._directory, s3, self._sound)
            servers = FleetServers(cleanup, self._directory, s3, tables)
            writers = FleetWriters(tables, WRITERS, self._directory / "written")
            cleanup.callback(writers.end)
            watching = Watching(servers.watch_port, servers.page)
            outcome = FleetOutcome(tables, watching)
            self._say(f"{len(tables)} tables, everything runs")
            self._pass(minutes * 60, servers, writers, outcome)
            writers.close()
            self._say(f"{self._now():.0f} s: the writers have ended")
            self._settle(outcome)
            watching.ask_watch(self._now())
            watching.read_page(self._now())
            self._count(servers, writers, outcome)
        return outcome

    def _now(self) -> float:
        return CLOCK.monotonic() - self._began

    def _pass(self, seconds: float, servers: FleetServers, writers: FleetWriters, outcome: FleetOutcome) -> None:
        self._began = CLOCK.monotonic()
        disturber = Disturber(servers, writers, self._rng)
        outcome.killed = disturber.killed
        written = [table for table in outcome.tables if table.batch_rows]
        models = {table.name: FleetModel(table.name, table.batch_rows) for table in written}
        for number, table in enumerate(cycle(written)):
            if self._now() > seconds or outcome.wrong:
                return
            if (killed := disturber.disturb(self._now())) is not None:
                self._say(f"{self._now():.0f} s: killed: {killed}")
            for name in servers.start_dead():
                outcome.ended[name] += 1
                self._say(f"{self._now():.0f} s: ended by itself, and started again: {name}")
            outcome.watching.ask_watch(self._now())
            if number % _PAGE_EVERY == 0:
                outcome.watching.read_page(self._now())
            self._read(table, models[table.name], writers, outcome)
            if dead := writers.dead():
                outcome.wrong.append(f"{dead} writers have failed; their errors are above")
            CLOCK.sleep(_LOOK_EVERY_S)

    def _read(self, table: FleetTable, model: FleetModel, writers: FleetWriters, outcome: FleetOutcome) -> None:
        model.advance(writers.written(table))
        try:
            found = _open(table).to_arrow(ScanRequest(columns=("id", "name")), consistency="durable")
        except MemwalError as error:
            outcome.refused.append(f"{table.name} could not be read after {self._now():.0f} s: {error}")
            return
        # One more than was counted may be on its way.
        wrong = model.mismatches(found, writers.written(table) + 1)
        outcome.reads[table.name] += 1
        if wrong:
            outcome.wrong.append(f"{table.name} after {model.batches} batches: {dict(list(wrong.items())[:5])}")

    def _settle(self, outcome: FleetOutcome) -> None:
        """Merge everything, while cycles of Airflow's may still be at work."""
        for table in outcome.tables:
            if table.is_sound:
                until(partial(_merge, table), _LONGEST_WAIT_S)

    def _count(self, servers: FleetServers, writers: FleetWriters, outcome: FleetOutcome) -> None:
        for table in (table for table in outcome.tables if table.is_sound):
            batches = outcome.batches[table.name] = writers.written(table)
            model = FleetModel(table.name, table.batch_rows)
            model.advance(batches)
            base = table.open().dataset().to_table(columns=["id", "name"])
            if wrong := model.mismatches(base, batches):
                outcome.wrong.append(f"{table.name} at the end: {dict(list(wrong.items())[:5])}")
            runs = _open(table).opened.ledger.runs("maintain")
            outcome.cycles[table.name] = sum(record.has_ended for record in runs)
        for run in servers.airflow.runs(CYCLE):
            outcome.take_tasks(run["dag_run_id"], servers.airflow.tasks(CYCLE, run["dag_run_id"]))


def _merge(table: FleetTable) -> bool:
    """Merge a table, and return whether nothing waits any more."""
    with suppress(ConflictError):
        _open(table).run(MergeRequest())
    return _open(table).status().merge_lag_generations == 0


def _open(table: FleetTable) -> Table:
    return Table.open(table.uri, storage_options=table.storage_options)
