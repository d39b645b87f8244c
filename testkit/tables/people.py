"""Small tables for tests: people with an integer key, in bucket regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.quality.table import QualityTable
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings
from memwal_core.storage import ObjectStore
from memwal_core.table import Table

PRIMARY_KEY_METADATA = {"lance-schema:unenforced-primary-key": "true"}

PEOPLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
    ]
)

VECTOR = "vector"
VECTOR_FIELD = pa.field(VECTOR, pa.list_(pa.float32(), 2))
"""A column that people may have besides: the id, as a point on a line."""


def people(*ids: int, name: str | None = None) -> pa.Table:
    """Return rows of ``PEOPLE`` with the given ids.

    Args:
        *ids: One row each, in this order; duplicates allowed.
        name: Name of all rows; ``p{id}`` if None.
    """
    names = [name if name is not None else f"p{i}" for i in ids]
    return pa.table({"id": list(ids), "name": names, "score": [float(i) for i in ids]}, schema=PEOPLE)


def make_people_table(
    uri: str,
    *,
    rows: pa.Table | None = None,
    buckets: int = 4,
    storage_options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    dropped_columns: Sequence[str] = (),
) -> BaseTable:
    """Create a table with a MemWAL index and one bucket spec (id 1) over ``id``.

    Args:
        uri: Where; nothing may be there.
        rows: First rows of the base table; none if None.
        buckets: Regions that the spec divides the keys into.
        storage_options: For remote stores.
        settings: Values; defaults if None.
        dropped_columns: Columns created in front of ``name`` and dropped again, which leaves gaps in the field ids.
    """
    first = rows if rows is not None else PEOPLE.empty_table()
    for name in reversed(dropped_columns):
        first = first.add_column(1, pa.field(name, pa.int32()), [pa.nulls(first.num_rows, pa.int32())])
    created = lance.write_dataset(first, uri, storage_options=dict(storage_options or {}) or None)
    if dropped_columns:
        created.drop_columns(list(dropped_columns))
    table = BaseTable.open(uri, storage_options=storage_options, settings=settings)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, buckets)])
    return table


def reopened(table: BaseTable, store: ObjectStore, settings: Settings | None = None) -> BaseTable:
    """Return the same table over another store, for example one that records or fails."""
    return BaseTable.open(table.uri, store=store, settings=settings)


def with_clock(table: BaseTable, clock: Clock) -> BaseTable:
    """Return the same table, on which time passes by another clock."""
    other = copy(table)
    other.clock = clock
    return other


def quality_of(table: Table) -> QualityTable:
    """Return the stored results and holds of a table's quality checks."""
    return QualityTable(table.base, table.opened.manifests, table.opened.settings)
