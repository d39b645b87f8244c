"""What readers of one table may keep from one view to the next, because it never changes.

A flushed MemTable is written once under a name that is never given again, and a version of the base
table never changes; so nothing here can be stale. Freshness is decided by the survey of each view,
which is never kept. What was collected meanwhile shows when its files are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import lance
from lance.lance import _Session

from memwal_core.generations import KeyedGeneration
from memwal_core.reader.sorted_keys import SortedKeys
from memwal_core.reader.superseded import BaseMask

_Value = TypeVar("_Value")

_MIB = 1024 * 1024
_ASKED_OFTEN = 64
"""Keys looked up in one version of the base table by searches of its index; for more, its keys are held."""
_MAX_DATASETS = 1024
_MAX_KEY_BYTES = 64 * _MIB
_MAX_BASE_VERSIONS = 2
_MAX_BASE_KEY_BYTES = 64 * _MIB
_MAX_MASK_BYTES = 64 * _MIB
_METADATA_BYTES = 64 * _MIB
_INDEX_BYTES = 256 * _MIB


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_Value]):
    value: _Value
    weight: int


class _Recent(Generic[_Value]):
    """The most recently used values, up to a total weight. Safe to share between threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, _Entry[_Value]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> _Value | None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return None
            self._entries.move_to_end(name)
            return entry.value

    def put(self, name: Hashable, value: _Value, weight: int) -> None:
        if weight > self._capacity:
            return
        with self._lock:
            replaced = self._entries.pop(name, None)
            self._weight += weight - (replaced.weight if replaced is not None else 0)
            self._entries[name] = _Entry(value, weight)
            while self._weight > self._capacity:
                self._weight -= self._entries.popitem(last=False)[1].weight


class ReadCache:
    """Opened datasets; keys of flushed MemTables and of the base table, and superseded rows, 64 MiB of each at most.

    Safe to share between threads and views.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.session = _Session(index_cache_size_bytes=_INDEX_BYTES, metadata_cache_size_bytes=_METADATA_BYTES)
        self._generations: _Recent[lance.LanceDataset] = _Recent(_MAX_DATASETS)
        self._base: _Recent[lance.LanceDataset] = _Recent(_MAX_BASE_VERSIONS)
        self._keys: _Recent[KeyedGeneration] = _Recent(_MAX_KEY_BYTES)
        self._base_keys: _Recent[SortedKeys] = _Recent(_MAX_BASE_KEY_BYTES)
        self._masks: _Recent[BaseMask] = _Recent(_MAX_MASK_BYTES)
        self._asked: tuple[Hashable, int] = (None, 0)

    def base(self, name: Hashable, opened: Callable[[], lance.LanceDataset]) -> lance.LanceDataset:
        """Return a version of the base table.

        Args:
            name: Tells versions apart, also those of another table that was created at the same address later.
            opened: Opens it.
        """
        return _known(self._base, name, opened, lambda _: 1)

    def base_keys(self, name: Hashable, asked: int, read: Callable[[], SortedKeys]) -> SortedKeys | None:
        """Return the keys of a version of the base table, once so many were asked for that reading them all pays.

        Args:
            name: As for ``base``.
            asked: How many keys are asked for now.
            read: Reads them.
        """
        known = self._base_keys.get(name)
        if known is not None:
            return known
        last, before = self._asked
        before = before if last == name else 0
        self._asked = (name, before + asked)  # Of two threads at once one may not be counted.
        return _known(self._base_keys, name, read, lambda keys: keys.nbytes) if before >= _ASKED_OFTEN else None

    def known_mask(self, name: Hashable) -> BaseMask | None:
        """Return a mask of superseded base rows if it was made before."""
        return self._masks.get(name)

    def mask(self, name: Hashable, make: Callable[[], BaseMask]) -> BaseMask:
        """Return the mask of the base rows that some flushed MemTables supersede.

        Args:
            name: Version of the base table, and addresses of the flushed MemTables.
            make: Finds the rows.
        """
        return _known(self._masks, name, make, lambda mask: mask.nbytes)

    def generation(self, path: str, opened: Callable[[], lance.LanceDataset]) -> lance.LanceDataset:
        """Return the dataset of a flushed MemTable.

        Args:
            path: Its address.
            opened: Opens it.
        """
        return _known(self._generations, path, opened, lambda _: 1)

    def keys(self, name: Hashable, read: Callable[[], KeyedGeneration]) -> KeyedGeneration:
        """Return a flushed MemTable with its keys.

        Args:
            name: Its address, and the columns that its own are mapped to.
            read: Reads them.
        """
        return _known(self._keys, name, read, _bytes_of)


def _known(
    recent: _Recent[_Value], name: Hashable, made: Callable[[], _Value], weight: Callable[[_Value], int]
) -> _Value:
    value = recent.get(name)
    if value is None:
        value = made()
        recent.put(name, value, weight(value))
    return value


def _bytes_of(keyed: KeyedGeneration) -> int:
    arrays = [each for each in (keyed.deleted, keyed.offsets, keyed.addresses) if each is not None]
    return int(keyed.keys.nbytes) + sum(int(each.nbytes) for each in arrays)
