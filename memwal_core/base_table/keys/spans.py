"""The keys that a search looks for, as ordered spans of values: what indexes with bounds are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MOST_OBJECTS = 1 << 18
"""Values that are not integers become Python objects up to this number; more become one span."""

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans of one column's values, ascending, both ends included; a single value is a span of its own.

    Attributes:
        lows: Integers as such, other values as Python objects; of equal length and type as ``highs``.
    """

    lows: Values
    highs: Values

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self.lows)

    @property
    def are_values(self) -> bool:
        """Whether every span is a single value."""
        return bool(np.all(self.lows == self.highs))

    def pairs(self) -> list[tuple[object, object]]:
        """Return the spans as pairs of Python values."""
        return list(zip(self.lows.tolist(), self.highs.tolist(), strict=True))

    def hit(self, lows: Values, highs: Values) -> npt.NDArray[np.bool_]:
        """Tell for each unit of an index, given its bounds, whether one of the spans touches it."""
        first = np.searchsorted(self.highs, lows, side="left")
        reached = np.minimum(first, len(self) - 1)
        return np.asarray((first < len(self)) & (self.lows[reached] <= highs), dtype=bool)

    def joined(self, lows: Values, highs: Values, most: int) -> Spans:
        """Join neighbours between which no unit of an index lies, then those with the fewest in between.

        Args:
            lows: Lowest value of each unit.
            highs: Highest value of each unit.
            most: Spans that may be left.
        """
        ended = np.searchsorted(np.sort(highs), self.lows[1:], side="left")
        begun = np.searchsorted(np.sort(lows), self.highs[:-1], side="right")
        between = ended - begun
        kept = np.flatnonzero(between > 0)
        if len(kept) >= most:
            kept = np.sort(kept[np.argsort(between[kept], kind="stable")[len(kept) - most + 1 :]])
        starts = np.concatenate([[0], kept + 1]).astype(np.int64)
        ends = np.concatenate([kept, [len(self) - 1]]).astype(np.int64)
        return Spans(self.lows[starts], self.highs[ends])


def spans_of(column: pa.ChunkedArray) -> Spans:
    """Return the distinct values of a column without NULL, at least one, each as a span; too many texts as one span."""
    if pa.types.is_integer(column.type):
        values = np.sort(column.to_numpy())  # `numpy.unique` would hash each of them.
        values = values[np.append(True, values[1:] != values[:-1])]
        return Spans(values, values)
    if len(column) > _MOST_OBJECTS:
        bounds = pc.min_max(column)
        return around([(bounds["min"].as_py(), bounds["max"].as_py())])
    distinct = pc.unique(column)
    values = values_of(distinct.take(pc.array_sort_indices(distinct)))
    return Spans(values, values)


def values_of(column: pa.Array | pa.ChunkedArray) -> Values:
    """Return values that can be compared with those of spans of the same type."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy())
    made = np.empty(len(column), dtype=object)
    made[:] = column.to_pylist()
    return made


def around(bounds: Iterable[tuple[object, object]]) -> Spans:
    """Return the spans that some bounds make together; they may overlap."""
    joined: list[list[Any]] = []
    for low, high in sorted(bounds):
        if joined and low <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    return Spans(_objects([low for low, _ in joined]), _objects([high for _, high in joined]))


def _objects(values: Sequence[object]) -> Values:
    if values and all(isinstance(value, int) for value in values):
        return np.array(values)
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made
