"""Deep looks at tables: rarer than the quick ones, beside them, and however long they take."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from memwal_core.clock import Clock
from memwal_core.fleet.looks import Looks
from memwal_core.observe.findings import Finding, Level, Severity
from memwal_core.observe.health import Health
from memwal_core.observe.signals import SPACE_SIGNALS, Reading
from memwal_core.redaction import redact
from memwal_core.registry import RegisteredTable

_AT_ONCE = 4
"""Deep looks list whole tables, so few of them run side by side."""

PATIENCE_S = 3600.0
"""Seconds after which a deep look keeps its place from no other table, and somebody should know of it."""

_log = logging.getLogger(__name__)

DeepLook = Callable[[RegisteredTable], Health]


@dataclass(frozen=True, slots=True)
class DeepFindings:
    """What the doctor found in a table when it last looked.

    Attributes:
        space: What it measured of garbage and of what is kept.
        is_urgent: Whether an operator must act on any of this now.
        seen_at: When that look ended, in UTC; None if none has ended yet.
        problem: Why nothing came of the newest look; empty if something did, or if there was no time yet.
    """

    found: tuple[Finding, ...] = ()
    space: tuple[Reading, ...] = ()
    is_urgent: bool = False
    seen_at: datetime | None = None
    problem: str = ""

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
        patience_s: Seconds after which a look counts as without an answer, and takes no place from others.
    """

    look: DeepLook
    clock: Clock
    every_s: float
    again_s: float = 0.0
    patience_s: float = PATIENCE_S
    _found: dict[str, DeepFindings] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Begin nothing yet."""
        self._looks = Looks(self._looked, clock=self.clock, at_once=_AT_ONCE, patience_s=self.patience_s, called="deep")

    def begin(self, entries: Iterable[RegisteredTable]) -> None:
        """Begin the looks that are due."""
        if not self.every_s:
            return
        with self._lock:
            # Whether one is due is only known when what has ended is taken in.
            due = [entry for entry in entries if self._is_due(entry.uri) and not self._looks.is_busy(entry.uri)]
            self._began |= {entry.uri: self.clock.monotonic() for entry in due}
            self._looks.begin(due)

    def keep(self, uris: Collection[str]) -> None:
        """Forget all other tables."""
        with self._lock:
            self._looks.keep(uris)
            for known in (self._found, self._began):
                for uri in known.keys() - uris:
                    del known[uri]

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks under way."""
        self._looks.wait(timeout_s)

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return self._looks.is_looking

    def of(self, uri: str) -> DeepFindings:
        """Return what the last look at a table that ended has found; nothing before the first."""
        with self._lock:
            return self._of(uri)

    def _of(self, uri: str) -> DeepFindings:
        before, look = self._found.get(uri, DeepFindings()), self._looks.take(uri)
        if look is not None:
            error = look.exception()
            # What was found before stands.
            found = look.result() if error is None else replace(before, problem=redact(str(error)))
            if found.problem and found.problem != before.problem:
                _log.warning("no deep look [table=%s]: %s", uri, found.problem)
            self._found[uri] = found
            return found
        if self._looks.is_busy(uri) and self.clock.monotonic() - self._began.get(uri, 0.0) >= self.patience_s:
            return replace(before, problem=self._looks.given_up(uri))
        return before

    def _looked(self, entry: RegisteredTable) -> DeepFindings:
        return DeepFindings.of(self.look(entry), self.clock.now())

    def _is_due(self, uri: str) -> bool:
        began = self._began.get(uri)
        every_s = self.again_s if self._of(uri).is_urgent else self.every_s
        return began is None or self.clock.monotonic() - began >= every_s
