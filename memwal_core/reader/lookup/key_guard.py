"""Filters that spare a lookup the generations that certainly do not hold a key."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.key_filter import KEY_FILTER_NAME, KeyFilter, hashes_of
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.storage import ObjectStore

_log = logging.getLogger(__name__)

_MAX_KNOWN = 1024
"""Filters cached; each takes a few bytes per key of its generation."""


class KeyGuard(Protocol):
    """Filters of generations. A wrong yes costs a read; a wrong no loses rows and must not happen."""

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Tell for each key whether a flushed MemTable may write or delete it."""
        ...


class StoredFilters:
    """The key filters stored beside flushed MemTables, each read once. Thread-safe.

    A generation without a readable filter may contain every key.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: OrderedDict[str, KeyFilter | None] = OrderedDict()
        self._lock = threading.Lock()
        self._hashed = threading.local()

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Tell for each key whether a generation may write or delete it; see ``KeyGuard``."""
        found = self._filter(source)
        if found is None or found.bounds.num_columns not in {0, keys.num_columns}:
            return np.ones(keys.num_rows, dtype=bool)
        # A key column may have been renamed since; the order of the key stays.
        own = found.bounds.schema.names
        named = keys if not found.keys or own == keys.column_names else keys.rename_columns(own)
        return found.may_contain(named, self._hashes_of(keys))

    def _hashes_of(self, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """Hash keys once for all generations; per thread, for the most recent keys."""
        hashed: tuple[pa.Table, npt.NDArray[np.uint64]] | None = getattr(self._hashed, "last", None)
        if hashed is None or hashed[0] is not keys:
            hashed = self._hashed.last = (keys, hashes_of(keys, keys.column_names))
        return hashed[1]

    def _filter(self, source: GenerationSource) -> KeyFilter | None:
        with self._lock:
            if source.directory in self._known:
                self._known.move_to_end(source.directory)
                return self._known[source.directory]
        found = self._read(source)
        with self._lock:
            self._known[source.directory] = found
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return found

    def _read(self, source: GenerationSource) -> KeyFilter | None:
        try:
            return KeyFilter.from_bytes(self._store.get(f"{source.directory}/{KEY_FILTER_NAME}"), source.directory)
        except ObjectNotFoundError:
            return None
        except CorruptionError as error:
            _log.warning(
                "key filter is damaged, every key may match [path=%s, reason=%s]", source.directory, error.what
            )
            return None
