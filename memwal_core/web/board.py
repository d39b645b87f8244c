"""What is known of each table, and when it was read: bounded reading, however many people look.

Tables are read in threads, so many at once and each at most once at a time. One that does not answer keeps its thread
and, after the deadline, no place; what it says later is shown then.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.errors import InternalError, MemwalError, UnavailableError
from memwal_core.native.panics import panics_raised
from memwal_core.registry import RegisteredTable
from memwal_core.settings import PageSettings

ViewT = TypeVar("ViewT")
OtherT = TypeVar("OtherT")

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
"""Seconds between two looks at the clock while nothing ends."""


@dataclass(frozen=True, slots=True)
class LastLook(Generic[ViewT]):
    """One table as it was last seen.

    Attributes:
        view: What was read; None if it never could be.
        seen_at: When that was, in UTC.
        age_s: How long ago, in seconds.
        error: Why it cannot be read now; None if it can.
        is_awaited: Whether it is being read, and nothing of it is known yet.
    """

    table: RegisteredTable
    view: ViewT | None = None
    seen_at: datetime | None = None
    age_s: float = 0.0
    error: MemwalError | None = None
    is_awaited: bool = False

    def reduced(self, to: Callable[[ViewT], OtherT]) -> LastLook[OtherT]:
        """Return the same with a part of what was read."""
        view = to(self.view) if self.view is not None else None
        return LastLook(self.table, view, self.seen_at, self.age_s, self.error, self.is_awaited)


@dataclass(frozen=True, slots=True)
class _Known(Generic[ViewT]):
    view: ViewT | None = None
    seen_at: datetime | None = None
    error: MemwalError | None = None
    asked: float | None = None


class Board(Generic[ViewT]):
    """The last known state of tables. Thread-safe; changes no table.

    Args:
        read: Reads one table; may raise any error, and may take for ever.
        settings: How much is read, and how long is waited.
        remembered: How many tables are known at most, those that were read last.
    """

    def __init__(
        self, read: Callable[[RegisteredTable], ViewT], settings: PageSettings, clock: Clock, remembered: int = 100_000
    ) -> None:
        """Keep the parts; nothing is read."""
        self._read = read
        self._remembered = remembered
        self._settings = settings
        self._clock = clock
        self._changed = threading.Condition()
        self._known: dict[RegisteredTable, _Known[ViewT]] = {}
        self._queue: dict[RegisteredTable, None] = {}
        self._running: dict[RegisteredTable, float] = {}

    def look(self, tables: Iterable[RegisteredTable]) -> tuple[LastLook[ViewT], ...]:
        """Return what is known of tables, after waiting a moment for those that are not known well enough.

        Args:
            tables: All of them; what is known of others is forgotten.
        """
        listed = tuple(tables)
        until = self._clock.monotonic() + self._settings.patience_s
        with self._changed:
            self._forget_others(listed)
            self._queue |= dict.fromkeys(table for table in listed if self._is_due(table))
            self._await(listed, until)
            return tuple(self._sight(table) for table in listed)

    def see(self, table: RegisteredTable) -> LastLook[ViewT]:
        """Read one table now, and return it, or what was last known if it does not answer within the deadline."""
        until = self._clock.monotonic() + self._settings.deadline_s
        with self._changed:
            if not self._is_under_way(table):
                self._queue = {table: None, **self._queue}
            self._await([table], until)
            return self._sight(table)

    def _await(self, tables: Iterable[RegisteredTable], until: float) -> None:
        self._begin()
        awaited = [table for table in tables if self._is_awaited(table)]
        while self._clock.monotonic() < until:
            while awaited and not self._is_awaited(awaited[-1]):
                awaited.pop()
            if not awaited:
                return
            self._changed.wait(_LOOK_S)
            self._begin()  # A place may have become free because its table is overdue.

    def _begin(self) -> None:
        while self._queue and sum(not self._is_overdue(each) for each in self._running) < self._settings.parallel:
            table = next(iter(self._queue))
            del self._queue[table]
            self._running[table] = self._clock.monotonic()
            context = contextvars.copy_context()
            # A daemon: the process ends although a table hangs.
            thread = threading.Thread(target=context.run, args=(self._run, table), name="memwal-page", daemon=True)
            thread.start()

    def _run(self, table: RegisteredTable) -> None:
        view, error = None, None
        try:
            with panics_raised():
                view = self._read(table)
        except MemwalError as raised:
            error = raised
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the other tables are shown
            # What it says may quote a secret; the log has it.
            _log.exception("the page cannot show a table [table=%s]", table.name)
            kind = type(raised).__name__
            error = InternalError(f"the table cannot be shown ({kind})", remedy="read the log")
        with self._changed:
            self._note(table, view, error)
            self._changed.notify_all()

    def _note(self, table: RegisteredTable, view: ViewT | None, error: MemwalError | None) -> None:
        self._running.pop(table, None)
        known, asked = self._what_of(table), self._clock.monotonic()
        self._known.pop(table, None)
        if view is None:
            self._known[table] = replace(known, error=error, asked=asked)
        else:
            self._known[table] = _Known(view, self._clock.now(), None, asked)
        if len(self._known) > self._remembered:
            del self._known[next(iter(self._known))]
        self._begin()

    def _forget_others(self, listed: tuple[RegisteredTable, ...]) -> None:
        kept = frozenset(listed)
        self._known = {table: known for table, known in self._known.items() if table in kept}

    def _is_due(self, table: RegisteredTable) -> bool:
        asked = self._what_of(table).asked
        late = asked is None or self._clock.monotonic() - asked >= self._settings.fresh_s
        return late and not self._is_under_way(table)

    def _is_under_way(self, table: RegisteredTable) -> bool:
        return table in self._running or table in self._queue

    def _is_awaited(self, table: RegisteredTable) -> bool:
        return self._is_under_way(table) and not self._is_overdue(table)

    def _is_overdue(self, table: RegisteredTable) -> bool:
        began = self._running.get(table)
        return began is not None and self._clock.monotonic() - began >= self._settings.deadline_s

    def _what_of(self, table: RegisteredTable) -> _Known[ViewT]:
        return self._known.get(table) or _Known()

    def _sight(self, table: RegisteredTable) -> LastLook[ViewT]:
        known = self._what_of(table)
        error = known.error
        if self._is_overdue(table):
            error = UnavailableError(
                f"the table has not answered for {self._clock.monotonic() - self._running[table]:.0f} s",
                remedy="see whether its store answers; the page shows it as soon as it does",
                deadline_s=self._settings.deadline_s,
            )
        age_s = (self._clock.now() - known.seen_at).total_seconds() if known.seen_at is not None else 0.0
        awaited = known.view is None and error is None
        return LastLook(table, known.view, known.seen_at, max(0.0, age_s), error, awaited)
