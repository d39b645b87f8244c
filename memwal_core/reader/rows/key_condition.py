"""Primary keys as an SQL condition, so that Lance can use an index on them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_core.base_table.keys.condition import sql_literal
from memwal_core.text import show_count


def condition_on(keys: pa.Table, columns: Sequence[str]) -> str:
    """Return the condition that a row has one of the keys; ``columns`` are the dataset's names of the key columns.

    Keys are not NULL and at most a few thousand, because the condition is SQL text.
    """
    names = [f"`{column}`" for column in columns]
    values = [[sql_literal(value) for value in column.to_pylist()] for column in keys.columns]
    if len(names) == 1:
        return f"{names[0]} = {values[0][0]}" if keys.num_rows == 1 else f"{names[0]} IN ({', '.join(values[0])})"
    rows = zip(*values, strict=True)
    alternatives = [" AND ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True)) for row in rows]
    return alternatives[0] if len(alternatives) == 1 else " OR ".join(f"({each})" for each in alternatives)


def shown_condition(keys: pa.Table) -> str:
    """Return the condition for display: a single key by value, several by their number."""
    if keys.num_rows == 1:
        return condition_on(keys, keys.column_names).replace("`", "")
    return f"({', '.join(keys.column_names)}) IN ({show_count(keys.num_rows, 'key')})"
