"""Which row of a MemTable is the newest of a key: two engines behind one contract.

Both keep keys as plain Python values, filled by whole batches in C loops (never on the write path,
see ``CoveredKeys``). ``hash`` finds a key in constant time and sorts only for ordered scans;
``ordered`` keeps its keys sorted, which costs memory and time at the first scan after a refresh, and
makes further range scans cheap.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.errors import InvalidRequestError

Key: TypeAlias = Any
"""A key value; a tuple of them for a composite key. Values of one column are comparable."""

NO_ROW = -1


class KeyIndexKind(StrEnum):
    """The engines."""

    HASH = "hash"
    ORDERED = "ordered"


class KeyIndex(Protocol):
    """Each key and the number of the last row that has it."""

    def add(self, keys: pa.Table, first_row: int) -> None:
        """Add a batch of key columns in key order, without NULLs; its rows are newer than all earlier ones."""
        ...

    def search(self, keys: pa.Table) -> npt.NDArray[np.int64]:
        """Return for each key the number of its newest row, ``NO_ROW`` where there is none."""
        ...

    def scan(self, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, int]]:
        """Yield keys and row numbers in key order, both bounds included; None for no bound.

        Text is ordered by its UTF-8 bytes, composite keys column by column. A later ``add`` does not change
        what an iterator yields.
        """
        ...

    def mem_size(self) -> int:
        """Return the bytes of the index structure itself, without the key values."""
        ...

    def __len__(self) -> int:
        """Return the number of distinct keys."""
        ...


class HashKeyIndex:
    """Constant-time lookups; an ordered scan sorts all keys."""

    def __init__(self) -> None:
        self._rows: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, keys: pa.Table, first_row: int) -> None:
        """Add a batch; see ``KeyIndex.add``."""
        self._rows.update(zip(_plain(keys), range(first_row, first_row + keys.num_rows), strict=True))

    def search(self, keys: pa.Table) -> npt.NDArray[np.int64]:
        """Find rows; see ``KeyIndex.search``."""
        found = map(self._rows.get, _plain(keys))
        return np.fromiter((NO_ROW if row is None else row for row in found), np.int64, keys.num_rows)

    def scan(self, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, int]]:
        """Yield keys in order; see ``KeyIndex.scan``."""
        return _between(sorted(self._rows), dict(self._rows), low, high)

    def mem_size(self) -> int:
        """Return the bytes of the hash table."""
        return sys.getsizeof(self._rows)


class OrderedKeyIndex(HashKeyIndex):
    """Lookups as ``hash``, and keys that stay sorted for range scans."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[Key] = []
        self._unsorted: list[Key] = []

    def add(self, keys: pa.Table, first_row: int) -> None:
        """Add a batch; see ``KeyIndex.add``."""
        self._unsorted += {key for key in _plain(keys) if key not in self._rows}
        super().add(keys, first_row)

    def scan(self, low: Key | None = None, high: Key | None = None) -> Iterator[tuple[Key, int]]:
        """Yield keys in order; see ``KeyIndex.scan``."""
        if self._unsorted:
            # Two sorted runs: sorting them together takes one merge.
            self._sorted = sorted([*self._sorted, *sorted(self._unsorted)])
            self._unsorted = []
        return _between(self._sorted, self._rows, low, high)

    def mem_size(self) -> int:
        """Return the bytes of the hash table and of the sorted keys."""
        return super().mem_size() + sys.getsizeof(self._sorted) + sys.getsizeof(self._unsorted)


def make_key_index(kind: KeyIndexKind) -> KeyIndex:
    """Return an empty index of a kind."""
    return OrderedKeyIndex() if kind is KeyIndexKind.ORDERED else HashKeyIndex()


def _plain(keys: pa.Table) -> Sequence[Key]:
    columns = [column.to_pylist() for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _between(
    ordered: Sequence[Key], rows: dict[Key, int], low: Key | None, high: Key | None
) -> Iterator[tuple[Key, int]]:
    try:
        start = 0 if low is None else bisect_left(ordered, low)
        end = len(ordered) if high is None else bisect_right(ordered, high)
    except TypeError as error:
        raise InvalidRequestError(
            "the bounds of the range do not compare with keys",
            remedy="pass values of the key's type; for a key of several columns tuples of them, in key order",
            low=low,
            high=high,
            a_key=ordered[0],
        ) from error
    # The rows are looked up now: an iterator must not see what is added after it was made.
    chosen = ordered[start:end]
    return iter(list(zip(chosen, map(rows.__getitem__, chosen), strict=True)))
