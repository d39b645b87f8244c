"""What is known of each table, and when it was read: bounded reading, however many people look.

Tables are read in threads, so many at once and each at most once at a time. One that does not answer before its
deadline loses its place; what it says later is shown then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.errors import InternalError, MemwalError, UnavailableError
from memwal_core.fleet.abandonable import POLL_S, AbandonableCalls, StartedCall
from memwal_core.native.panics import panics_raised
from memwal_core.registry import RegisteredTable
from memwal_core.settings import PageSettings

ViewT = TypeVar("ViewT")
OtherT = TypeVar("OtherT")

_log = logging.getLogger(__name__)


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
        self._calls = AbandonableCalls[ViewT](clock, settings.parallel, settings.deadline_s)
        self._asked: dict[RegisteredTable, StartedCall[ViewT]] = {}

    def look(self, tables: Iterable[RegisteredTable]) -> tuple[LastLook[ViewT], ...]:
        """Return what is known of tables, after waiting a moment for those that are not known well enough.

        Args:
            tables: All of them; what is known of others is forgotten.
        """
        listed = tuple(tables)
        until = self._clock.monotonic() + self._settings.patience_s
        with self._changed:
            self._forget_others(listed)
            for table in listed:
                if self._is_due(table):
                    self._ask(table)
            self._await(listed, until)
            return tuple(self._sight(table) for table in listed)

    def see(self, table: RegisteredTable) -> LastLook[ViewT]:
        """Read one table now, and return it, or what was last known if it does not answer within the deadline."""
        until = self._clock.monotonic() + self._settings.deadline_s
        with self._changed:
            if table not in self._asked:
                self._ask(table, first=True)
            self._await([table], until)
            return self._sight(table)

    def _ask(self, table: RegisteredTable, *, first: bool = False) -> None:
        call = self._asked[table] = self._calls.start("memwal-page", partial(self._view, table), first=first)
        call.future.add_done_callback(partial(self._note, table))

    def _view(self, table: RegisteredTable) -> ViewT:
        with panics_raised():
            return self._read(table)

    def _await(self, tables: Iterable[RegisteredTable], until: float) -> None:
        awaited = [table for table in tables if self._is_awaited(table)]
        self._calls.fill()
        while self._clock.monotonic() < until:
            while awaited and not self._is_awaited(awaited[-1]):
                awaited.pop()
            if not awaited:
                return
            self._changed.wait(POLL_S)
            self._calls.fill()  # A place may have become free because its table is overdue.

    def _note(self, table: RegisteredTable, ended: Future[ViewT]) -> None:
        error = _as_ours(table, ended.exception())
        with self._changed:
            del self._asked[table]
            known, asked = self._what_of(table), self._clock.monotonic()
            self._known.pop(table, None)
            if error is not None:
                self._known[table] = replace(known, error=error, asked=asked)
            else:
                self._known[table] = _Known(ended.result(), self._clock.now(), None, asked)
            if len(self._known) > self._remembered:
                del self._known[next(iter(self._known))]
            self._changed.notify_all()

    def _forget_others(self, listed: tuple[RegisteredTable, ...]) -> None:
        kept = frozenset(listed)
        self._known = {table: known for table, known in self._known.items() if table in kept}

    def _is_due(self, table: RegisteredTable) -> bool:
        asked = self._what_of(table).asked
        late = asked is None or self._clock.monotonic() - asked >= self._settings.fresh_s
        return late and table not in self._asked

    def _is_awaited(self, table: RegisteredTable) -> bool:
        return table in self._asked and not self._asked[table].is_overdue

    def _what_of(self, table: RegisteredTable) -> _Known[ViewT]:
        return self._known.get(table) or _Known()

    def _sight(self, table: RegisteredTable) -> LastLook[ViewT]:
        known = self._what_of(table)
        error, call = known.error, self._asked.get(table)
        if call is not None and call.is_overdue:
            error = UnavailableError(
                f"the table has not answered for {call.seconds:.0f} s",
                remedy="see whether its store answers; the page shows it as soon as it does",
                deadline_s=self._settings.deadline_s,
            )
        age_s = (self._clock.now() - known.seen_at).total_seconds() if known.seen_at is not None else 0.0
        awaited = known.view is None and error is None
        return LastLook(table, known.view, known.seen_at, max(0.0, age_s), error, awaited)


def _as_ours(table: RegisteredTable, error: BaseException | None) -> MemwalError | None:
    if error is None or isinstance(error, MemwalError):
        return error
    # What it says may quote a secret; the log has it.
    _log.error("the page cannot show a table [table=%s]", table.name, exc_info=error)
    return InternalError(f"the table cannot be shown ({type(error).__name__})", remedy="read the log")
