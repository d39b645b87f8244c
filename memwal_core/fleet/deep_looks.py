"""Deep looks at tables: rarer than the quick ones, beside them, and however long they take."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import datetime

from memwal_core.clock import Clock
from memwal_core.jobs.findings import Finding, Level, Severity
from memwal_core.jobs.health import Health
from memwal_core.observe.signals import SPACE_SIGNALS, Reading
from memwal_core.redaction import redact
from memwal_core.registry import RegisteredTable

_AT_ONCE = 4
"""Deep looks list whole tables, so few of them run side by side."""

_log = logging.getLogger(__name__)

DeepLook = Callable[[RegisteredTable], Health]


@dataclass(frozen=True, slots=True)
class DeepFindings:
    """What the doctor found in a table when it last looked.

    Attributes:
        space: What it measured of garbage and of what is kept.
        is_urgent: Whether an operator must act on any of this now.
        seen_at: When that look ended, in UTC; None if none has ended yet.
    """

    found: tuple[Finding, ...] = ()
    space: tuple[Reading, ...] = ()
    is_urgent: bool = False
    seen_at: datetime | None = None

    @classmethod
    def of(cls, health: Health, seen_at: datetime) -> DeepFindings:
        """Keep of a look what a quick one does not see."""
        critical = any(each.severity is Severity.CRITICAL for each in health.damage)
        full = any(each.level is Level.PAGE for each in health.signals if each.signal in SPACE_SIGNALS)
        return cls(health.damage, health.space, critical or full, seen_at)


@dataclass
class DeepLooks:
    """What the doctor found in each table when it last looked. Thread-safe.

    Attributes:
        look: Judges a table as the doctor does; may raise any error, and may take for ever.
        every_s: Seconds between two looks at a table; 0: none ever begins.
        again_s: The same after a look that found something urgent, so that what is mended is soon not told any more.
    """

    look: DeepLook
    clock: Clock
    every_s: float
    again_s: float = 0.0
    _found: dict[str, DeepFindings] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _busy: dict[str, Future[DeepFindings]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE))

    def begin(self, entries: Iterable[RegisteredTable]) -> None:
        """Take in what has ended, and begin the looks that are due."""
        if not self.every_s:
            return
        with self._lock:
            self._collect()
            for entry in entries:
                if entry.uri not in self._busy and self._is_due(entry.uri):
                    self._began[entry.uri] = self.clock.monotonic()
                    self._start(entry)

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks under way."""
        with self._lock:
            busy = tuple(self._busy.values())
        wait(busy, timeout=timeout_s)

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        with self._lock:
            return not all(each.done() for each in self._busy.values())

    def of(self, uri: str) -> DeepFindings:
        """Return what the last look at a table that ended has found; nothing before the first."""
        with self._lock:
            self._collect()
            return self._of(uri)

    def _of(self, uri: str) -> DeepFindings:
        return self._found.get(uri, DeepFindings())

    def _is_due(self, uri: str) -> bool:
        began = self._began.get(uri)
        every_s = self.again_s if self._of(uri).is_urgent else self.every_s
        return began is None or self.clock.monotonic() - began >= every_s

    def _start(self, entry: RegisteredTable) -> None:
        future: Future[DeepFindings] = Future()
        self._busy[entry.uri] = future

        def run() -> None:
            with self._places:
                try:
                    future.set_result(DeepFindings.of(self.look(entry), self.clock.now()))
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is about this table alone
                    future.set_exception(error)

        name, context = f"memwal-deep-{entry.name}", contextvars.copy_context()
        threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()

    def _collect(self) -> None:
        for uri, future in [each for each in self._busy.items() if each[1].done()]:
            del self._busy[uri]
            problem = future.exception()
            if problem is None:
                self._found[uri] = future.result()
            else:  # What was found before stands.
                _log.warning("no deep look [table=%s]: %s", uri, redact(str(problem)))
