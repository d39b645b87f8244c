"""The keys of a pass as spans of values, wherever the keys are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table.keys.spans import Spans, around, spans_of
from memwal_core.jobs.merge.work.units import KeyPart


def key_spans(parts: Sequence[KeyPart], column: str) -> Spans:
    """Return the values of a key column: each of them, or one span for each part if some are staged."""
    tables = [part.table for part in parts if part.table is not None]
    if len(tables) == len(parts):
        return spans_of(pa.concat_tables(tables).column(column))
    bounds = (part.bounds if part.table is None else key_bounds(part.table) for part in parts)
    return around([each[column] for each in bounds if column in each])


def key_bounds(keys: pa.Table) -> dict[str, tuple[object, object]]:
    """Return the lowest and the highest value of each column; nothing if there are no rows."""
    if not keys.num_rows:
        return {}
    found = {name: pc.min_max(keys.column(name)) for name in keys.column_names}
    return {name: (each["min"].as_py(), each["max"].as_py()) for name, each in found.items()}
