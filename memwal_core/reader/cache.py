"""What readers of one table may keep from one view to the next, because it never changes.

The name of a flushed MemTable is never reused and a version of the base table never changes, so nothing here can be
stale. Freshness comes from the survey of each view, which is never cached. Collected files show up as missing when they
are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import lance
from lance.lance import _Session

from memwal_core.flushed.read import KeyedGeneration
from memwal_core.reader.rows.deletion_mask import DeletionMask
from memwal_core.reader.rows.sorted_keys import SortedKeys

_Value = TypeVar("_Value")

_MIB = 1024 * 1024
_ASKED_OFTEN = 64
"""After this many keys were looked up in one version of the base table, all its keys are cached."""
_MAX_DATASETS = 1024
_MAX_KEY_BYTES = 64 * _MIB
_MAX_BASE_VERSIONS = 2
_MAX_GAPS = 64
_MAX_BASE_KEY_BYTES = 64 * _MIB
_MAX_MASK_BYTES = 64 * _MIB


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_Value]):
    value: _Value
    weight: int


class _Recent(Generic[_Value]):
    """The most recently used values, up to a total weight. Thread-safe."""

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
    """Opened datasets, keys of flushed MemTables and of base tables, deletion masks, what merges made. Thread-safe.

    Keys and masks take at most 64 MiB per kind.

    Args:
        session: Lance's own caches, in which all datasets are opened.
    """

    def __init__(self, session: _Session) -> None:
        self.session = session
        self._generations: _Recent[lance.LanceDataset] = _Recent(_MAX_DATASETS)
        self._base: _Recent[lance.LanceDataset] = _Recent(_MAX_BASE_VERSIONS)
        self._keys: _Recent[KeyedGeneration] = _Recent(_MAX_KEY_BYTES)
        self._base_keys: _Recent[SortedKeys] = _Recent(_MAX_BASE_KEY_BYTES)
        self._masks: _Recent[DeletionMask] = _Recent(_MAX_MASK_BYTES)
        self._merged: _Recent[frozenset[int]] = _Recent(_MAX_GAPS)
        self._asked: tuple[Hashable, int] = (None, 0)

    def base(self, name: Hashable, opened: Callable[[], lance.LanceDataset]) -> lance.LanceDataset:
        """Return a base version; ``name`` must differ, too, after a table is re-created at the same address."""
        return _known(self._base, name, opened, lambda _: 1)

    def base_keys(self, name: Hashable, asked: int, read: Callable[[], SortedKeys]) -> SortedKeys | None:
        """Return the keys of a base version once enough keys were looked up that reading all of them pays off.

        ``asked`` is how many keys this lookup has; ``name`` is as for ``base``.
        """
        known = self._base_keys.get(name)
        if known is not None:
            return known
        last, before = self._asked
        before = before if last == name else 0
        self._asked = (name, before + asked)  # Racing threads may lose a count, which only delays caching.
        return _known(self._base_keys, name, read, lambda keys: keys.nbytes) if before >= _ASKED_OFTEN else None

    def known_mask(self, name: Hashable) -> DeletionMask | None:
        """Return a deletion mask if it was computed before."""
        return self._masks.get(name)

    def mask(self, name: Hashable, make: Callable[[], DeletionMask]) -> DeletionMask:
        """Return a deletion mask; ``name`` is the base version and the addresses of the flushed MemTables."""
        return _known(self._masks, name, make, lambda mask: mask.nbytes)

    def merged(self, name: Hashable, find: Callable[[], frozenset[int]]) -> frozenset[int]:
        """Return which fragments merges made; ``name`` is the base version and the fragments in question."""
        return _known(self._merged, name, find, lambda _: 1)

    def generation(self, path: str, opened: Callable[[], lance.LanceDataset]) -> lance.LanceDataset:
        """Return the dataset of a flushed MemTable by its address."""
        return _known(self._generations, path, opened, lambda _: 1)

    def keys(self, name: Hashable, read: Callable[[], KeyedGeneration]) -> KeyedGeneration:
        """Return a flushed MemTable and its keys; ``name`` is its address and the base columns it is mapped to."""
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
