"""What readers keep is bounded, and the least recently used goes first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from lance.lance import _Session

from memwal_core.flushed.read import ColumnMapping, KeyedGeneration
from memwal_core.reader.cache import ReadCache

MIB = 1024 * 1024


def _keyed(mib: int) -> KeyedGeneration:
    keys = pa.table({"id": np.zeros(mib * MIB // 8, dtype=np.int64)})
    return KeyedGeneration(1, "uri", None, ColumnMapping({}, (), {}, True), keys, np.zeros(0, dtype=bool), None)  # type: ignore[arg-type]


def test_keys_beyond_64_mib_are_dropped_least_recently_used_first() -> None:
    cache = ReadCache(_Session())
    made: list[str] = []

    def ask(name: str, mib: int) -> None:
        cache.keys(name, lambda: made.append(name) or _keyed(mib))  # type: ignore[func-returns-value]

    for name in ("a", "b", "a", "c", "a", "b"):
        ask(name, 30)

    assert made == ["a", "b", "c", "b"]


def test_keys_larger_than_the_cache_are_not_kept_and_drop_nothing() -> None:
    cache = ReadCache(_Session())
    made: list[str] = []

    def ask(name: str, mib: int) -> None:
        cache.keys(name, lambda: made.append(name) or _keyed(mib))  # type: ignore[func-returns-value]

    ask("small", 1)
    ask("large", 65)
    ask("large", 65)
    ask("small", 1)

    assert made == ["small", "large", "large"]
