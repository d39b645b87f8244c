"""Deep looks at the tables of the watch: rarer than its rounds, beside them, and however long they take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from memwal_core.clock import Clock
from memwal_core.jobs.findings import Finding, Severity
from memwal_core.redaction import redact
from memwal_core.registry import RegisteredTable

_AT_ONCE = 4
"""Deep looks list whole tables, so few of them run side by side."""

_log = logging.getLogger(__name__)

DeepLook = Callable[[RegisteredTable], Iterable[Finding]]


@dataclass
class DeepLooks:
    """What the doctor found in each table when it last looked. For one thread.

    Attributes:
        look: Returns what the doctor finds; may raise any error, and may take for ever.
        every_s: Seconds between two looks at a table; after one that found something critical the next begins at once,
            so that what is mended is not told for longer than it must.
    """

    look: DeepLook
    clock: Clock
    every_s: float
    _found: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _busy: dict[str, Future[tuple[Finding, ...]]] = field(default_factory=dict)
    _places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE))

    def begin(self, entries: Iterable[RegisteredTable]) -> None:
        """Take in what has ended, and begin the looks that are due."""
        self._collect()
        for entry in entries:
            if entry.uri not in self._busy and self._is_due(entry.uri):
                self._began[entry.uri] = self.clock.monotonic()
                self._start(entry)

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks under way."""
        wait(self._busy.values(), timeout=timeout_s)

    def found(self, uri: str) -> tuple[Finding, ...]:
        """Return what the last look at a table that ended has found; nothing before the first."""
        self._collect()
        return self._found.get(uri, ())

    def _is_due(self, uri: str) -> bool:
        began = self._began.get(uri)
        critical = any(each.severity is Severity.CRITICAL for each in self._found.get(uri, ()))
        return began is None or critical or self.clock.monotonic() - began >= self.every_s

    def _start(self, entry: RegisteredTable) -> None:
        future: Future[tuple[Finding, ...]] = Future()
        self._busy[entry.uri] = future

        def run() -> None:
            with self._places:
                try:
                    future.set_result(tuple(self.look(entry)))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is about this table alone
                    future.set_exception(error)

        threading.Thread(target=run, name=f"memwal-deep-{entry.name}", daemon=True).start()

    def _collect(self) -> None:
        for uri, future in [each for each in self._busy.items() if each[1].done()]:
            del self._busy[uri]
            problem = future.exception()
            if problem is None:
                self._found[uri] = future.result()
            else:  # What was found before stands.
                _log.warning("no deep look [table=%s]: %s", uri, redact(str(problem)))
