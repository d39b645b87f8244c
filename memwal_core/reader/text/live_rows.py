"""A set of row ids, one bit per row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_LOW_BITS = 32
_LOW_MASK = np.uint64((1 << _LOW_BITS) - 1)


class LiveRows:
    """A set of row ids.

    Row ids are addresses (fragment and offset) or, in tables with stable row ids, small numbers. Either way ids with
    the same upper 32 bits lie close together.
    """

    def __init__(self, batches: Iterable[npt.NDArray[np.uint64]]) -> None:
        self._bits: dict[int, npt.NDArray[np.uint8]] = {}
        for ids in batches:
            for high, low in _by_fragment(ids):
                self._add(high, low)

    def __len__(self) -> int:
        """Count the ids."""
        return sum(int(np.unpackbits(bits).sum(dtype=np.int64)) for bits in self._bits.values())

    def contains(self, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Tell for each id whether it is in the set."""
        found = np.zeros(len(ids), dtype=bool)
        highs = ids >> np.uint64(_LOW_BITS)
        for high in np.unique(highs).tolist():
            bits = self._bits.get(high)
            if bits is None:
                continue
            places = np.flatnonzero(highs == high)
            low = (ids[places] & _LOW_MASK).astype(np.int64)
            inside = low < len(bits) * 8
            places, low = places[inside], low[inside]
            found[places] = (bits[low >> 3] >> (7 - (low & 7)).astype(np.uint8)) & 1
        return found

    def _add(self, high: int, low: npt.NDArray[np.int64]) -> None:
        known = self._bits.get(high)
        size = max(int(low.max()) + 1, 0 if known is None else len(known) * 8)
        flags = np.zeros(size, dtype=bool)
        flags[low] = True
        bits = np.packbits(flags)
        if known is not None:
            bits[: len(known)] |= known
        self._bits[high] = bits


def _by_fragment(ids: npt.NDArray[np.uint64]) -> Iterable[tuple[int, npt.NDArray[np.int64]]]:
    highs = ids >> np.uint64(_LOW_BITS)
    for high in np.unique(highs).tolist():
        yield int(high), (ids[highs == high] & _LOW_MASK).astype(np.int64)
