"""A key filter that keys can be added to, for rows that are still being written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.key_filter.blocks import WORDS, block_count, fill, hits
from memwal_core.key_filter.filter import hashes_of


class GrowingKeyFilter:
    """Tells which keys have certainly not been added. Not thread-safe.

    Args:
        capacity: Number of keys it is sized for; more make it less selective, never wrong.
        false_positive_rate: Share of absent keys that may pass at that number, above 0 and below 1.
    """

    def __init__(self, capacity: int, false_positive_rate: float) -> None:
        self._blocks = np.zeros((block_count(capacity, false_positive_rate), WORDS), np.uint32)

    @property
    def size_bytes(self) -> int:
        """Bytes of the filter."""
        return int(self._blocks.nbytes)

    def add(self, keys: pa.Table, columns: Sequence[str]) -> None:
        """Add keys: integers, booleans, text or binary, no NULLs; ``columns`` in key order."""
        fill(self._blocks, hashes_of(keys, columns))

    def may_contain(self, keys: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Tell for each key whether it may have been added; False is certain."""
        return hits(self._blocks, hashes_of(keys, columns))
