"""Tables that comparisons work on: always the same rows for the same arguments."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.writer import TableWriter

LETTERS = 32
"""Length of the text of a row."""

_MANY = 2**40
_Made = TypeVar("_Made")

UNSYNCED = Settings(
    storage=StorageSettings(fsync=False),
    writer=WriterSettings(max_memtable_bytes=_MANY, max_memtable_rows=_MANY, max_buffered_bytes=_MANY),
)
"""For what is made before anything is measured: nothing is synced, and MemTables are flushed on demand."""


def schema(floats: int) -> pa.Schema:
    """Return the schema: an int64 key, text, and a vector."""
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    return pa.schema([key, pa.field("body", pa.string()), pa.field("vector", pa.list_(pa.float32(), floats))])


def rows(keys: np.ndarray, rng: np.random.Generator, *, floats: int) -> pa.Table:
    """Make rows with random text and vectors."""
    letters = rng.integers(ord("a"), ord("z") + 1, (len(keys), LETTERS), dtype=np.uint8)
    starts = pa.py_buffer(np.arange(0, letters.size + 1, LETTERS, dtype=np.int32))
    body = pa.Array.from_buffers(pa.string(), len(keys), [None, starts, pa.py_buffer(letters)])
    values = pa.array(rng.random(len(keys) * floats, dtype=np.float32))
    vector = pa.FixedSizeListArray.from_arrays(values, floats)
    return pa.Table.from_arrays([pa.array(keys, pa.int64()), body, vector], schema=schema(floats))


def digits(data: bytes) -> pa.Array:
    """Return texts of 32 hexadecimal digits, as of UUIDs without their dashes, one for each 16 bytes."""
    count = len(data) // 16
    ends = np.arange(count + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data.hex().encode()))


def upserts(number: int, count: int, rng: np.random.Generator, *, base_rows: int) -> np.ndarray:
    """Return keys of a batch, each once: half of them in the base, half new and of this batch alone."""
    old = rng.choice(base_rows, count // 2, replace=False)
    first_new = base_rows + number * count
    return rng.permutation(np.concatenate([old, np.arange(first_new, first_new + count - len(old))]))


def with_regions(
    uri: str, buckets: int, settings: Settings = UNSYNCED, storage_options: Mapping[str, str] | None = None
) -> BaseTable:
    """Give a Lance table a MemWAL index with hashed regions."""
    table = BaseTable.open(uri, settings=settings, storage_options=storage_options)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, buckets)])
    return table


def flush_generations(table: BaseTable, generations: list[pa.Table], settings: Settings = UNSYNCED) -> None:
    """Put each table and flush it."""
    with TableWriter.open(table.with_settings(settings)) as writer:
        for each in generations:
            writer.put(each)
            writer.flush()


def link_copy(source: Path, target: Path) -> Path:
    """Copy a directory whose files are never changed in place, without copying their bytes."""
    shutil.copytree(source, target, copy_function=os.link)
    return target


class MadeOnce(Generic[_Made]):
    """What all trials of a case share, because making it takes far longer than they do.

    Args:
        make: Called once, with an empty directory beside those of the trials.
    """

    def __init__(self, make: Callable[[Path], _Made]) -> None:
        """Make nothing yet."""
        self._make = make
        self._made: dict[Path, _Made] = {}

    def get(self, trial: Path) -> _Made:
        """Return it; made at the first call, beside the directories of the trials.

        Args:
            trial: Directory of the trial that asks.
        """
        beside = trial.parent
        if beside not in self._made:
            self._made[beside] = self._make(Path(tempfile.mkdtemp(dir=beside)))
        return self._made[beside]


def require_equal(found: object, expected: object) -> None:
    """Check what an arm left behind.

    Raises:
        AssertionError: It is not what its work must lead to.
    """
    if found != expected:
        raise AssertionError(f"an arm did not do its work: found {found}, expected {expected}")
