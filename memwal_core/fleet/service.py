"""A service that maintains the tables of a registry for as long as it runs: look who is due, again and again."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import MemwalError
from memwal_core.fleet.abandonable import POLL_S, AbandonableCalls
from memwal_core.fleet.maintain import Fleet, FleetRequest, OpenRegistered, broken_round
from memwal_core.fleet.report import RoundEnd, TableRound
from memwal_core.registry import RegisteredTable, Registry, tables_left
from memwal_core.settings import FleetSettings

_log = logging.getLogger(__name__)

_SILENT = (RoundEnd.OVERDUE, RoundEnd.STILL_RUNNING)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What the service knows of a table.

    Attributes:
        last: How its last cycle ended, without its report; None before the first.
        ended: When.
        cycles: How many cycles ended how, since the service began.
        survey_failure: Why it could not be asked whether it is due; None once it has answered.
    """

    last: TableRound | None = None
    ended: datetime | None = None
    cycles: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    survey_failure: TableRound | None = None

    @property
    def problem(self) -> TableRound | None:
        """What needs somebody, or another attempt; None if nothing does."""
        return next((each for each in (self.survey_failure, self.last) if each is not None and each.is_problem), None)

    @property
    def is_silent(self) -> bool:
        """Whether it did not say in time whether it is due."""
        return self.survey_failure is not None and self.survey_failure.end in _SILENT


@dataclass(frozen=True, slots=True)
class ServiceState:
    """All tables at one moment.

    Attributes:
        working: Tables whose cycles run or wait for their turn.
        looked: When all tables but silent ones had last been asked whether they are due; None before the first time.
        progressed_s: When a look last went on, in monotonic seconds: a table answered, or its time was over; None
            before the first time.
        registry_problem: Why the registry cannot be read; empty if it can. The tables before are maintained meanwhile.
    """

    tables: Mapping[str, KnownTable] = field(default_factory=lambda: MappingProxyType({}))
    working: tuple[str, ...] = ()
    looked: datetime | None = None
    progressed_s: float | None = None
    registry_problem: str = ""


class FleetService:
    """Maintains tables until it is stopped. A table that fails, hangs or is slow keeps no other waiting but for places.

    Args:
        load: Reads the registry; called at each look, so that changes of the file are followed.
        request: Which tables, and how; with ``due_only`` off, each look begins a cycle of every table.
        settings: How many tables at once, and for how long.
        on_round: Called from many threads for each cycle that ended, and once for each new problem.
        open_table: As for ``Fleet``: tables are worked on in processes of their own if None.
        clock: The system's if None.
    """

    def __init__(
        self,
        load: Callable[[], Registry],
        request: FleetRequest,
        *,
        settings: FleetSettings,
        on_round: Callable[[TableRound], None],
        open_table: OpenRegistered | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._load = load
        self._request = request
        self._on_round = on_round
        self._clock = clock if clock is not None else SystemClock()
        self._stopped = threading.Event()
        self._fleet = Fleet(open_table, settings=settings, clock=self._clock, stopped=self._stopped.is_set)
        # Without a limit: the fleet itself gives up what takes too long.
        self._cycles = AbandonableCalls[None](self._clock, settings.parallel, limit_s=math.inf)
        self._registry = Registry()
        self._entries: tuple[RegisteredTable, ...] = ()
        self._problem = ""
        self._looked: datetime | None = None
        self._progressed_s: float | None = None
        self._tables: dict[str, KnownTable] = {}
        self._working: dict[str, Future[None]] = {}
        self._lock = threading.RLock()
        """Taken again by ``_end`` where the machine has no thread for a cycle that begins, and for those that wait."""
        self._ending = threading.Event()
        self._looks: threading.Thread | None = None
        self._looks_at_silent: threading.Thread | None = None

    @property
    def is_asking(self) -> bool:
        """Whether a look is under way, or a table has not answered; then the process must end by ``os._exit``."""
        return _is_alive(self._looks) or _is_alive(self._looks_at_silent) or bool(self._fleet.running)

    @property
    def state(self) -> ServiceState:
        """What is known now."""
        with self._lock:
            return ServiceState(
                dict(self._tables), tuple(self._working), self._looked, self._progressed_s, self._problem
            )

    def start(self, every_s: float) -> None:
        """Look at once, and then every so many seconds, in a thread of its own."""

        def looks() -> None:
            while not self._ending.is_set():
                began = self._clock.monotonic()
                try:
                    self.look()
                except Exception:  # noqa: BLE001 - whatever it is, it must not end the service
                    _log.exception("a look at the tables failed; the next one comes in its time")
                self._ending.wait(max(0.0, every_s - (self._clock.monotonic() - began)))

        self._looks = threading.Thread(target=looks, name="memwal-service", daemon=True)
        self._looks.start()

    def look(self) -> None:
        """Ask every idle table whether it is due, and begin the cycles of those that are; waits for no cycle."""
        chosen = self._chosen()
        with self._lock:
            broken = [] if self._request.names else [broken_round(each) for each in self._registry.broken]
            names = {*(table.name for table in chosen), *(each.table for each in broken)}
            self._tables = {name: self._tables.get(name, KnownTable()) for name in sorted(names)}
            idle = [table for table in chosen if table.name not in self._working]
            silent = [table for table in idle if self._tables[table.name].is_silent]
        for found in broken:
            self._note_survey_failure(found)
        self._ask_silent(silent)
        for table in self._due([table for table in idle if table not in silent]):
            self._begin(table)
        with self._lock:
            self._looked, self._progressed_s = self._clock.now(), self._clock.monotonic()

    def stop(self, grace_s: float, *, last_s: float = 10.0) -> bool:
        """Begin no cycle any more, and wait for those that run; after the grace, they are ended, as by Ctrl-C.

        Those that work in this process (``open_table``) begin no further step.

        What they did stands, and the next run of a job goes on from there.

        Args:
            grace_s: Seconds in which running cycles may end by themselves.
            last_s: Seconds after that in which they have to give their leases back.

        Returns:
            Whether all have ended. If not, the process must end by ``os._exit``.
        """
        self._ending.set()
        ended = self._wait(grace_s, cut_short=self._stopped.is_set)
        self._stopped.set()
        self._fleet.stop()
        return ended or self._wait(last_s)

    def stop_now(self) -> None:
        """Cut the grace of ``stop`` short; safe in a signal handler."""
        self._stopped.set()

    def _chosen(self) -> tuple[RegisteredTable, ...]:
        """Read the registry; where it cannot be read, or lacks a table that was asked for, the one before goes on.

        Not with what it excludes.
        """
        problem, chosen = "", self._entries
        try:
            registry = self._load()
            chosen = tuple(each for each in chosen if not registry.excludes(each.name, each.uri))
            chosen = registry.choose(self._request.names)
            if left := tables_left(self._entries, registry):
                _log.warning("not maintained any more, because the registry does not name them: %s", ", ".join(left))
            self._registry = registry
        except MemwalError as error:
            problem = error.what
            if problem != self._problem:
                _log.warning("the tables before are maintained: %s", error)
        self._entries = chosen
        with self._lock:
            self._problem = problem
        return chosen

    def _due(self, idle: list[RegisteredTable]) -> Iterator[RegisteredTable]:
        """Yield each table that is due as soon as it says so: a store that is silent keeps no other table waiting."""
        if not self._request.due_only:
            yield from idle
            return
        known = {table.name: table for table in idle}
        for name, found in self._fleet.survey(idle):
            if isinstance(found, TableRound):
                self._note_survey_failure(found)
                continue
            if found.is_due:
                yield known[name]
            self._note_answer(name)  # Only now: until its cycle has begun, no other look may ask it.

    def _ask_silent(self, silent: list[RegisteredTable]) -> None:
        """Ask tables that did not answer in a thread of their own: they take places, and may be many."""

        def ask() -> None:
            for table in self._due(silent):
                self._begin(table)

        with self._lock:
            if silent and not _is_alive(self._looks_at_silent):
                look = threading.Thread(target=ask, name="memwal-silent", daemon=True)
                look.start()
                self._looks_at_silent = look

    def _begin(self, table: RegisteredTable) -> None:
        with self._lock:  # Whoever stops the service waits for each cycle that has begun.
            cycle = self._cycles.start(f"memwal-{table.name}", partial(self._cycle, table.name)).future
            self._working[table.name] = cycle
        cycle.add_done_callback(partial(self._end, table.name))

    def _cycle(self, name: str) -> None:
        # It may have waited for hours: what counts is what the registry says now.
        table = next((each for each in self._entries if each.name == name), None)
        if table is not None and not self._ending.is_set():
            self._note(self._fleet.maintain_table(table, self._request))

    def _end(self, name: str, cycle: Future[None]) -> None:
        if (error := cycle.exception()) is not None:
            _log.error("the cycle of a table failed [table=%s]", name, exc_info=error)
        with self._lock:
            self._working.pop(name, None)

    def _note(self, found: TableRound) -> None:
        """Keep how a cycle ended, and tell it."""
        with self._lock:
            before = self._tables.get(found.table, KnownTable())
            cycles = Counter(before.cycles)
            cycles[found.outcome.value if found.outcome is not None else found.end.value] += 1
            # What is told has the report, which may be as long as the table is large.
            kept = replace(found, report=None)
            self._tables[found.table] = KnownTable(kept, self._clock.now(), dict(cycles))
        is_new = before.last is None or (before.last.end, before.last.why) != (found.end, found.why)
        if is_new or found.end is RoundEnd.MAINTAINED:
            self._on_round(found)

    def _note_survey_failure(self, found: TableRound) -> None:
        """Keep why a table could not be asked, and tell it once; a silent one is silent, whatever is said of it."""
        with self._lock:
            before = self._tables.get(found.table, KnownTable())
            known = self._tables[found.table] = replace(before, survey_failure=found)
            self._progressed_s = self._clock.monotonic()
        same = before.is_silent and known.is_silent
        if not same and (before.survey_failure is None or before.survey_failure.why != found.why):
            self._on_round(found)

    def _note_answer(self, name: str) -> None:
        with self._lock:
            self._tables[name] = replace(self._tables.get(name, KnownTable()), survey_failure=None)
            self._progressed_s = self._clock.monotonic()

    def _wait(self, seconds: float, *, cut_short: Callable[[], bool] = lambda: False) -> bool:
        """Wait until no cycle runs; return whether that came in time."""
        until = self._clock.monotonic() + seconds
        while (cycles := self._running()) and self._clock.monotonic() < until and not cut_short():
            wait(cycles, timeout=POLL_S)
        return not cycles

    def _running(self) -> list[Future[None]]:
        with self._lock:
            return [cycle for cycle in self._working.values() if not cycle.done()]


def _is_alive(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()
