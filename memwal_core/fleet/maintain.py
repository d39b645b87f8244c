"""One round over the tables of a registry: each that is due goes through its cycle, and none delays another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError, MemwalError, UnavailableError
from memwal_core.fleet.due import Due, UnderWay, cycle_due, cycle_request, never_under_way, work_due
from memwal_core.fleet.isolation import Deadline, EndedWork, Isolation, Work
from memwal_core.fleet.process_pool import TableProcesses
from memwal_core.fleet.report import FleetReport, RoundEnd, TableRound
from memwal_core.fleet.rounds import failed, run_cycle
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.opening import open_here
from memwal_core.registry import BrokenEntry, RegisteredTable, Registry
from memwal_core.settings import FleetSettings
from memwal_core.table import Table

OpenRegistered = Callable[[RegisteredTable], Table]
"""Opens a registered table with the rights of this process."""

OptionsOf = Callable[[RegisteredTable], Mapping[str, str]]
"""Storage options of a registered table, which go before those of the environment."""

_LAST_S = 10.0
"""Seconds in which processes of a round that is interrupted have to give their leases back."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """What a round is asked for.

    Attributes:
        names: Only these tables; empty = all that are maintained.
        due_only: Leave out tables whose last cycle began less than ``every_minutes`` ago.
        dry_run: Only plan; changes nothing.
    """

    names: tuple[str, ...] = ()
    due_only: bool = True
    dry_run: bool = False
    ignore_pauses: bool = False


class Fleet:
    """Maintains many tables. Thread-safe; two at once, here or elsewhere, do no harm.

    Each table is worked on in a process of its own, because its files may end that; with ``open_table`` or
    ``executors``, which belong to this process, in a thread of this one. With ``executors``, a table whose last cycle
    died is worked on in a process of its own and without them: if its files did that, they end no other table's work.

    Args:
        open_table: Opens a registered table; with the settings and storage options of the environment if None.
        options: Storage options of a table, if this process knows more of them than the environment says.
        executors: Returns what does heavy work of a table outside of this process; nothing does if None.
        settings: How many tables at once, and for how long.
        clock: The system's if None.
        stopped: Whether work that has begun in this process must begin no further step.
    """

    def __init__(
        self,
        open_table: OpenRegistered | None = None,
        *,
        options: OptionsOf = lambda _: {},
        executors: Callable[[Table], Executors | None] | None = None,
        settings: FleetSettings | None = None,
        clock: Clock | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._open: OpenRegistered = open_table or (lambda table: open_here(table.uri, options(table)))
        self._options = options
        self._executors = executors
        self._settings = settings if settings is not None else FleetSettings()
        self._clock = clock if clock is not None else SystemClock()
        known = self._settings
        self._process_pool = TableProcesses(known.parallel, known.survey_deadline_s) if open_table is None else None
        self._threads = Isolation(self._clock, stopped)

    @property
    def running(self) -> tuple[str, ...]:
        """Tables that were given up and whose threads have not ended.

        A process that ends meanwhile must do so by ``os._exit``, after it has delivered its report: native code in
        such a thread may crash while the interpreter ends.
        """
        return self._threads.running

    def maintain_tables(self, registry: Registry, request: FleetRequest | None = None) -> FleetReport:
        """Go through the cycle of each table that is due.

        What a table does wrong is a finding about this table: one that cannot be opened, is frozen, fails or hangs.

        Args:
            registry: The tables.
            request: Everything that is due if None.

        Raises:
            InvalidRequestError: A name is not registered; nothing was done.
        """
        asked = request if request is not None else FleetRequest()
        began = self._clock.monotonic()
        chosen = registry.choose(asked.names)
        tables = {table.name: table for table in chosen}
        rounds: dict[str, TableRound] = {}

        def end(found: TableRound) -> None:
            rounds[found.table] = found
            _log.info("%s: %s: %s", found.table, found.end.value, found.why)

        for found in map(broken_round, registry.broken if not asked.names else ()):
            end(found)
        try:
            for found in self._maintained(self._due_of(chosen, end) if asked.due_only else chosen, asked):
                end(found)
        except (KeyboardInterrupt, SystemExit):
            self.stop(_LAST_S)
            raise
        broken = [found for name, found in rounds.items() if name not in tables]
        return FleetReport((*(rounds[name] for name in tables), *broken), self._clock.monotonic() - began)

    def maintain_table(self, table: RegisteredTable, request: FleetRequest | None = None) -> TableRound:
        """Go through the cycle of one table, due or not; whatever it does wrong is in what is returned."""
        asked = request if request is not None else FleetRequest()
        (found,) = self._maintained([table], asked)
        _log.info("%s: %s: %s", found.table, found.end.value, found.why)
        return found

    def stop(self, wait_s: float = 0.0) -> None:
        """End processes that work on tables, which give their leases back, and wait so long for their ends.

        ``stopped`` says it to this one's threads.
        """
        if self._process_pool is not None:
            self._process_pool.stop(wait_s)

    def survey(
        self, tables: Sequence[RegisteredTable], *, is_under_way: UnderWay = never_under_way, plan: bool = False
    ) -> Iterator[tuple[str, Due | TableRound]]:
        """Ask all tables at once whether their cycles are due, and yield what each says as soon as it does.

        Args:
            tables: Which.
            is_under_way: Of a cycle that has not ended: whether the next one waits for it. Called by several threads.
            plan: Also plan the cycles of those whose time has come: one without any work is not due, and one that
                cannot be planned is.

        Yields:
            Name and answer; a round for one that could not tell in time, or at all.
        """
        known = {table.name: table for table in tables}
        work = {name: partial(self._due, table, is_under_way, plan) for name, table in known.items()}
        ends = self._threads.run(
            work.items(), parallel=self._settings.survey_parallel, deadline_s=self._settings.survey_deadline_s
        )
        for ended in ends:
            yield ended.name, ended.result if ended.result is not None else _unfinished(known[ended.name], ended)

    def _due_of(
        self, tables: Sequence[RegisteredTable], end: Callable[[TableRound], None]
    ) -> Iterator[RegisteredTable]:
        """Yield each table that is due as soon as it says so, and end the round of every other."""
        known = {table.name: table for table in tables}
        for name, found in self.survey(tables):
            if isinstance(found, TableRound):
                end(found)
            elif found.is_due:
                yield known[name]
            else:
                end(TableRound(name, known[name].uri, RoundEnd.NOT_DUE, found.why))

    def _maintained(self, tables: Iterable[RegisteredTable], asked: FleetRequest) -> Iterator[TableRound]:
        begun: dict[str, RegisteredTable] = {}

        def work() -> Iterator[tuple[str, Work[TableRound]]]:
            for table in tables:
                begun[table.name] = table
                yield table.name, partial(self._cycle, table, asked)

        ends = self._threads.run(work(), parallel=self._settings.parallel, deadline_s=self._settings.deadline_s)
        for ended in ends:
            yield _unfinished(begun[ended.name], ended) if ended.result is None else ended.result

    def _due(self, table: RegisteredTable, is_under_way: UnderWay, plan: bool, _: Deadline) -> Due | TableRound:
        opened = self._open(table)
        due = cycle_due(table, opened.opened, self._clock.now(), is_under_way=is_under_way)
        if not (plan and due.is_due):
            return due
        request = cycle_request(table)
        try:
            if self._process_pool is None:
                return work_due(opened.opened, request)
            found = self._process_pool.work_due(table.name, table.uri, self._options(table), request)
        except MemwalError as error:
            return Due(True, f"planning failed, as the step will tell: {error.what}")
        # The table can be opened, so that its history can say which of its jobs keep failing.
        return found if isinstance(found, Due) else Due(True, f"planning failed, as the step will tell: {found.why}")

    def _cycle(self, table: RegisteredTable, asked: FleetRequest, deadline: Deadline) -> TableRound:
        request = cycle_request(table, dry_run=asked.dry_run, ignore_pauses=asked.ignore_pauses)
        if self._process_pool is not None and (self._executors is None or self._has_died(table)):
            return self._process_pool.cycle(table.name, table.uri, self._options(table), request, deadline)
        opened = self._open(table)
        executors = self._executors(opened) if self._executors is not None else None
        return run_cycle(table.name, table.uri, opened, request, deadline, executors)

    def _has_died(self, table: RegisteredTable) -> bool:
        """Tell whether the last cycle of a table has no end: its process died, or it works still, which is no harm."""
        runs = self._open(table).opened.ledger.history(MaintainRequest().key).runs
        return bool(runs) and not runs[-1].has_ended


def broken_round(entry: BrokenEntry) -> TableRound:
    """Return what becomes of a table whose entry is not understood."""
    return TableRound(entry.name, "", RoundEnd.FAILED, entry.why, exit_code=InvalidRequestError.exit_code)


def _unfinished(table: RegisteredTable, ended: EndedWork[Any]) -> TableRound:
    if ended.is_running:
        why = "an earlier round gave it up, and its work has not ended"
        code = UnavailableError.exit_code
        return TableRound(table.name, table.uri, RoundEnd.STILL_RUNNING, why, exit_code=code)
    if ended.is_overdue:
        why = f"nothing came of it in {ended.seconds:g} s; what it does goes on under its own lease"
        code = UnavailableError.exit_code
        return TableRound(table.name, table.uri, RoundEnd.OVERDUE, why, ended.seconds, exit_code=code)
    return failed(table.name, table.uri, ended.error, ended.seconds)
