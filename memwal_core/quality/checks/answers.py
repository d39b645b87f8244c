"""Asking an index and a scan the same questions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.format.columns import DISTANCE_COLUMN, ROW_ADDRESS
from memwal_core.quality.plan import IndexCheck
from memwal_core.text import show_count

_ALL_PARTITIONS = 100_000
_REFINE = 100
_SMALLEST = -(2**63)
_RELATIVE = 1e-3
_ABSOLUTE = 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """One sampled value, with the answers of the index and of a scan."""

    index: str
    question: str
    indexed: str
    scanned: str


def compare_answers(dataset: lance.LanceDataset, check: IndexCheck, samples: int) -> list[Answer]:
    """Query an index for values of rows that are spread evenly over the table.

    Returns one answer per distinct value; none if the column has no values or its type cannot be compared.
    """
    with translated("query an index", dataset.uri, version=dataset.version, index=check.name):
        rows = dataset.count_rows()
        if not rows:
            return []
        numbers = np.unique(np.linspace(0, rows - 1, min(samples, rows)).astype(np.int64))
        values = dataset.take(numbers.tolist(), columns=[check.column]).column(0).combine_chunks().drop_null()
        if check.is_vector:
            return list(_nearest(dataset, check, values))
        if pa.types.is_temporal(values.type):
            return []  # They have no literals below, and Python does not have all of them.
        return _equal(dataset, check, values.to_pylist())


def _equal(dataset: lance.LanceDataset, check: IndexCheck, values: Sequence[Any]) -> list[Answer]:
    literals = [literal for value in values if (literal := _literal(value)) is not None]
    if not literals or len(literals) < len(values):
        return []
    column = check.column.replace("`", "``")
    condition = f"`{column}` IN ({', '.join(dict.fromkeys(literals))})"
    indexed = _addresses(dataset, check.column, condition, use_index=True)
    scanned = _addresses(dataset, check.column, condition, use_index=False)
    return [
        Answer(check.name, str(value), _digest(indexed, value), _digest(scanned, value))
        for value in dict.fromkeys(values)
    ]


def _literal(value: object) -> str | None:
    """Return a value as SQL; None if its type has no exact SQL form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # Lance reads the digits of a negative number first, and those of the smallest one are no integer.
        return str(value) if value > _SMALLEST else f"({value + 1} - 1)"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return None


def _addresses(dataset: lance.LanceDataset, column: str, condition: str, *, use_index: bool) -> pa.Table:
    scanner = dataset.scanner(
        columns=[column], filter=condition, with_row_address=True, use_scalar_index=use_index, prefilter=True
    )
    return scanner.to_table()


def _digest(found: pa.Table, value: object) -> str:
    wanted = pa.scalar(value, found.schema.field(0).type)
    addresses = found.filter(pc.equal(found.column(0), wanted)).column(ROW_ADDRESS).to_numpy()
    return f"{show_count(len(addresses), 'row')} {hashlib.sha256(np.sort(addresses).tobytes()).hexdigest()[:12]}"


def _nearest(dataset: lance.LanceDataset, check: IndexCheck, vectors: Sequence[Any]) -> Iterator[Answer]:
    metric = str(dataset.stats.index_stats(check.name)["indices"][0]["metric_type"]).lower()
    for number, vector in enumerate(vectors):
        query = {"column": check.column, "q": np.asarray(vector.as_py(), dtype=np.float32), "k": 1, "metric": metric}
        indexed = _distance(dataset, {**query, "use_index": True, "nprobes": _ALL_PARTITIONS, "refine_factor": _REFINE})
        scanned = _distance(dataset, {**query, "use_index": False})
        answer = scanned if _is_as_near(indexed, scanned) else indexed
        yield Answer(check.name, f"vector {number}", str(answer), str(scanned))


def _is_as_near(indexed: float | None, scanned: float | None) -> bool:
    if scanned is None or not math.isfinite(scanned):
        return True  # A vector with infinite values is as far from all.
    # Distances by inner product may be negative.
    return indexed is not None and indexed <= scanned + abs(scanned) * _RELATIVE + _ABSOLUTE


def _distance(dataset: lance.LanceDataset, query: Mapping[str, Any]) -> float | None:
    """Return the distance of the nearest row; None if the search finds none."""
    found = dataset.scanner(columns=[DISTANCE_COLUMN], nearest=dict(query)).to_table().column(DISTANCE_COLUMN)
    return float(found[0].as_py()) if len(found) else None
