"""Counting keys: whether every primary key occurs once in a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa

from memwal_core.base_table.translate import translated

SAMPLE_KEYS = 5
"""Repeated keys shown."""

_COPIES = "copies"


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Live rows and distinct keys; ``repeated`` shows a few repeated keys, each with its ``copies_column``."""

    rows: int
    keys: int
    repeated: tuple[Mapping[str, object], ...]


def count_keys(dataset: lance.LanceDataset, key: Sequence[str]) -> KeyCounts:
    """Count the keys of an opened version, inside Lance's query engine and its memory bound."""
    copies, counted_as = _grouped(key), _quoted(copies_column(key))
    with translated("count keys", dataset.uri, version=dataset.version):
        totals = f"SELECT COUNT(*) AS keys, CAST(COALESCE(SUM({counted_as}), 0) AS BIGINT) AS rows FROM ({copies})"  # noqa: S608 - quoted
        [counted] = [row for batch in _run(dataset, totals) for row in batch.to_pylist()]
        repeated: list[Mapping[str, object]] = []
        if counted["rows"] != counted["keys"]:
            order = ", ".join(_quoted(column) for column in key)
            sample = key_groups(dataset, key, f"HAVING COUNT(*) > 1 ORDER BY {order} LIMIT {SAMPLE_KEYS}")
            repeated = [row for batch in sample for row in batch.to_pylist()]
    return KeyCounts(counted["rows"], counted["keys"], tuple(repeated))


def key_groups(dataset: lance.LanceDataset, key: Sequence[str], condition: str) -> list[pa.RecordBatch]:
    """Return the keys that meet a condition of SQL, each with its number of rows in ``copies_column``."""
    with translated("count keys", dataset.uri, version=dataset.version):
        return _run(dataset, f"{_grouped(key)} {condition}")


def copies_column(key: Sequence[str]) -> str:
    """Return what the number of a key's rows is called beside its columns: ``copies``, unless one has that name."""
    name = _COPIES
    while name in key:
        name += "_"
    return name


def _grouped(key: Sequence[str]) -> str:
    names = ", ".join(_quoted(column) for column in key)
    return f"SELECT {names}, COUNT(*) AS {_quoted(copies_column(key))} FROM dataset GROUP BY {names}"  # noqa: S608 - names are quoted


def _run(dataset: lance.LanceDataset, statement: str) -> list[pa.RecordBatch]:
    return list(dataset.sql(statement).build().to_batch_records())


def _quoted(column: str) -> str:
    escaped = column.replace('"', '""')
    return f'"{escaped}"'
