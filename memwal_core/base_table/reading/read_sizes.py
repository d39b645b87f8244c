"""How much Lance reads at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import lance
import pyarrow as pa

from memwal_core.base_table.reading.fragments import fragments_of

KEY_ROWS = 1 << 16
"""Of keys and row addresses alone."""

PREFETCH_BYTES = 64 * 1024 * 1024
"""Upper bound of what Lance prefetches in a bounded scan; its own default of 2 GiB is more than an executor has."""

BATCH_BYTES = 16 * 1024 * 1024
_LANCE_ROWS = 8192
"""Read at once, whatever their size, where nothing else is said."""

_SAMPLED_FRAGMENTS = 64


def rows_at_once(dataset: lance.LanceDataset, columns: Sequence[str], most: int | None = None) -> int | None:
    """Return how many rows a scan may read at once; ``most`` where so many fit, None leaves it to Lance.

    Estimated from the files of some fragments, since columns of variable length tell no width; all columns count.
    """
    schema: pa.Schema = dataset.schema
    if not any(_is_variable(schema.field(name).type) for name in columns if name in schema.names):
        return most
    ids = list(dataset.fragment_ids())
    sampled = ids[:: ceil(len(ids) / _SAMPLED_FRAGMENTS) or 1]
    width = max((_mean_width(each.metadata) for each in fragments_of(dataset, sampled)), default=0)
    fitting = max(1, BATCH_BYTES // max(1, width))
    return fitting if fitting < (most or _LANCE_ROWS) else most


def _mean_width(fragment: Any) -> int:  # noqa: ANN401 - pylance does not type it
    return sum(each.file_size_bytes or 0 for each in fragment.files) // max(1, fragment.physical_rows or 0)


def _is_variable(kind: pa.DataType) -> bool:
    try:
        return not kind.bit_width
    except ValueError:  # pyarrow: it has no fixed width
        return True
