"""Counts of one read, by the nodes that ran and the sources they ran on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from memwal_core.clock import Clock

ROWS = "rows"
ROWS_MASKED = "rows_masked"
"""Rows left out because newer generations write or delete their keys."""


@dataclass
class ReadNode:
    """What ran on one source.

    Attributes:
        source: What it ran on; empty for all sources together.
        counts: What it met: rows, keys, what was ruled out.
        seconds: Time in it, what it caused included; of several threads together.
    """

    name: str
    source: str
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Trace:
    """Collects what a read does. Thread-safe.

    Args:
        clock: Measures; None if nothing is to be collected.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[tuple[str, str], ReadNode] = {}

    @property
    def nodes(self) -> tuple[ReadNode, ...]:
        """What ran, in the order in which it first ended."""
        return tuple(self._nodes.values())

    @contextmanager
    def step(self, name: str, source: str = "") -> Iterator[Counter[str]]:
        """Time a step; the caller adds its counts to those it is given."""
        counts: Counter[str] = Counter()
        if self._clock is None:
            yield counts
            return
        began = self._clock.monotonic()
        yield counts
        self._add(name, source, counts, self._clock.monotonic() - began)

    def batches(self, name: str, source: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on, counting their rows and the time that they take to come."""
        if self._clock is None:
            yield from batches
            return
        coming = iter(batches)
        self._add(name, source, Counter({ROWS: 0}), 0.0)
        while True:
            began = self._clock.monotonic()
            batch = next(coming, None)
            rows = 0 if batch is None else batch.num_rows
            self._add(name, source, Counter({ROWS: rows}), self._clock.monotonic() - began)
            if batch is None:
                return
            yield batch

    def _add(self, name: str, source: str, counts: Counter[str], seconds: float) -> None:
        with self._lock:
            node = self._nodes.setdefault((name, source), ReadNode(name, source))
            node.counts.update(counts)
            node.seconds += seconds


NO_TRACE = Trace()
"""Collects nothing."""
