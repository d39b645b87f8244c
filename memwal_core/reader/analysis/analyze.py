"""Running a query once, with everything counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance.lance import _Session

from memwal_core.base_table import Sources, TableReader
from memwal_core.reader.analysis.counted_store import counted_store
from memwal_core.reader.analysis.trace import ROWS_MASKED, ReadNode, Trace
from memwal_core.reader.freshness import Consistency, Freshness
from memwal_core.reader.history import ReadHistory
from memwal_core.reader.merged import MergedReader
from memwal_core.reader.plan.sources import RegionHolder
from memwal_core.reader.view import TableView
from memwal_core.settings import Settings
from memwal_core.storage import ObjectStore
from memwal_core.text import show_count

Query = Callable[[TableView], pa.Table]

_OPENED = "OpenExec"
_FILTER = "BloomFilterGuardExec"


@dataclass(frozen=True, slots=True)
class Requests:
    """What a read asked of the store.

    Attributes:
        calls: Of this library, by the method of the store.
        lance_reads: Reads of data and indexes by Lance; its looks for names and sizes are not among them.
    """

    calls: dict[str, int]
    read_bytes: int
    lance_reads: int
    lance_read_bytes: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a query did when it ran, with nothing cached before.

    Attributes:
        seconds: From the look at the table to the last row.
        nodes: What ran, by source, in the order in which it first ended.
    """

    rows: int
    seconds: float
    nodes: tuple[ReadNode, ...]
    requests: Requests
    freshness: Freshness

    @property
    def sources_opened(self) -> tuple[str, ...]:
        """Datasets that were opened."""
        return tuple(each.source for each in self.nodes if each.name == _OPENED)

    @property
    def filters(self) -> tuple[ReadNode, ...]:
        """Filters of flushed MemTables that were asked, with the keys asked for and ruled out."""
        return tuple(each for each in self.nodes if each.name == _FILTER)

    @property
    def rows_masked(self) -> int:
        """Rows of the base table that were left out because newer generations write or delete their keys."""
        return sum(each.counts[ROWS_MASKED] for each in self.nodes)

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "rows": self.rows,
            "seconds": self.seconds,
            "nodes": [
                {"node": each.name, "source": each.source, **each.counts, "seconds": each.seconds}
                for each in self.nodes
            ],
            "sources_opened": list(self.sources_opened),
            "filters": [{"source": each.source, **each.counts} for each in self.filters],
            "rows_masked": self.rows_masked,
            "requests": {
                "calls": self.requests.calls,
                "read_bytes": self.requests.read_bytes,
                "lance_reads": self.requests.lance_reads,
                "lance_read_bytes": self.requests.lance_read_bytes,
            },
            "freshness": self.freshness.to_dict(),
        }

    def to_text(self) -> str:
        """Return it as lines."""
        lines = [f"{each.name}: {each.source}{_shown(each)}" for each in self.nodes]
        calls = ", ".join(f"{name} {number}" for name, number in sorted(self.requests.calls.items()))
        ruled_out = sum(each.counts["keys_ruled_out"] for each in self.filters)
        return "\n".join(
            [
                *lines,
                f"{show_count(self.rows, 'row')} in {self.seconds:.3f} s",
                f"sources opened: {', '.join(self.sources_opened) or 'none'}",
                f"filters asked: {len(self.filters)}, keys ruled out: {ruled_out}",
                f"rows masked: {self.rows_masked}",
                f"requests: {sum(self.requests.calls.values())} ({calls}), {self.requests.read_bytes} bytes",
                f"requests of Lance: {self.requests.lance_reads}, {self.requests.lance_read_bytes} bytes",
            ]
        )


def analyze(
    table: TableReader,
    query: Query,
    *,
    consistency: Consistency | str | None = None,
    version: int | None = None,
    writers: Callable[[], Sequence[RegionHolder]] = tuple,
    history: Callable[[TableReader], ReadHistory] | None = None,
) -> Analysis:
    """Run a query on a present view, and tell what it did; nothing is cached from earlier reads.

    ``history`` gives the memory of a table that it reads through the table it is given.

    Raises:
        MemwalError: As for ``MergedReader.read``.
    """
    requests: Counter[str] = Counter()
    trace = Trace(table.clock)
    watched = _Watched(
        counted_store(table.store, requests), settings=table.settings, sources=Sources(table.clock, table.rng)
    )
    remembered = history(watched) if history is not None else None
    reader = MergedReader(watched, writers=writers, history=remembered, trace=trace)
    seen: list[Freshness] = []

    def noted(view: TableView) -> pa.Table:
        seen.append(view.freshness)
        return query(view)

    began = table.clock.monotonic()
    rows = reader.read(noted, consistency=consistency, version=version)
    seconds = table.clock.monotonic() - began
    reads, read_bytes = watched.lance_reads()
    calls = {name: number for name, number in requests.items() if name != "bytes"}
    return Analysis(
        rows=rows.num_rows,
        seconds=seconds,
        nodes=trace.nodes,
        requests=Requests(calls, requests["bytes"], reads, read_bytes),
        freshness=seen[-1],
    )


class _Watched(TableReader):
    """A base table that knows what Lance has read of it."""

    def __init__(self, store: ObjectStore, *, settings: Settings | None = None, sources: Sources | None = None) -> None:
        super().__init__(store, settings=settings, sources=sources)
        self._seen: dict[int, lance.LanceDataset] = {}

    def dataset(self, version: int | None = None, session: _Session | None = None) -> lance.LanceDataset:
        dataset = super().dataset(version, session)
        # Datasets of one session have their counts together.
        self._seen[id(self.session) if session is None and self._is_cached else id(session or dataset)] = dataset
        return dataset

    def lance_reads(self) -> tuple[int, int]:
        """Return requests and bytes."""
        every = [each.io_stats_snapshot() for each in self._seen.values()]
        return sum(each.read_iops for each in every), sum(each.read_bytes for each in every)


def _shown(node: ReadNode) -> str:
    counts = ", ".join(f"{name}={number}" for name, number in node.counts.items())
    return f", {counts}, {node.seconds:.3f} s".replace(", ,", ",") if counts else f", {node.seconds:.3f} s"
