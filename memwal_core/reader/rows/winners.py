"""The newest row of each key of a region, over all its generations that the base table lacks.

Keys are read first; rows only when they are asked for. Memory: the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table.keys.search import KeySearch
from memwal_core.deduplicate import deduplicate
from memwal_core.ids import RegionId
from memwal_core.reader.analysis.trace import NO_TRACE, Trace
from memwal_core.reader.names import source_name
from memwal_core.reader.rows.generation_rows import FlushedRows, MemoryRows, RowRequest


@dataclass(frozen=True, slots=True)
class WinningRows:
    """What one generation contributes.

    Attributes:
        live: Row numbers of its rows that no newer row replaces or deletes, ascending.
    """

    rows: FlushedRows | MemoryRows
    live: npt.NDArray[np.int64]
    trace: Trace = NO_TRACE

    def read(self, request: RowRequest) -> Iterator[pa.RecordBatch]:
        """Read them."""
        yield from self.trace.batches("TakeExec", source_name(self.rows.source), self.rows.read(self.live, request))


@dataclass(frozen=True, slots=True)
class RegionWinners:
    """What the generations of one region contribute.

    Attributes:
        keys: Every key that they write or delete, once. Older rows of these keys are superseded.
        generations: Newest first.
    """

    region_id: RegionId
    keys: pa.Table
    generations: tuple[WinningRows, ...]


def superseded_keys(winners: Sequence[RegionWinners], key: Sequence[str]) -> KeySearch | None:
    """Return the keys whose rows in the base table are outdated; None if there are none, or the table has no key."""
    keys = [region.keys for region in winners if region.keys.num_rows]
    return KeySearch(pa.concat_tables(keys), key) if keys and key else None


def find_winners(
    region_id: RegionId,
    newest_first: Sequence[FlushedRows | MemoryRows],
    key: Sequence[str],
    trace: Trace = NO_TRACE,
) -> RegionWinners:
    """Find which rows of a region's generations win.

    Args:
        region_id: The region.
        newest_first: At least one generation.
        key: The primary key.
        trace: Collects what is read of them.
    """
    oldest_first = list(reversed(newest_first))
    newest = deduplicate(oldest_first, key)
    wanted = newest.by_source(newest.live)
    winning = [WinningRows(rows, live, trace) for rows, live in zip(oldest_first, wanted, strict=True)]
    return RegionWinners(region_id, newest.keys_of(newest.last), tuple(reversed(winning)))
