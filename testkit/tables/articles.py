"""Tables with indexes of every kind for tests: articles with a title, a topic and a vector."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings
from testkit.tables.people import PRIMARY_KEY_METADATA

DIMENSIONS = 16

ARTICLES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("title", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), DIMENSIONS)),
    ]
)

INDEX_KINDS = ("BTREE", "BITMAP", "INVERTED", "IVF_PQ")
"""Of ``id``, ``topic``, ``title`` and ``vec``; the indexes are named after their columns."""

_BUCKETS = 4
_COLUMNS = {"BTREE": "id", "BITMAP": "topic", "INVERTED": "title"}


def articles(first: int, count: int, *, name: str = "old", centre: float | None = None) -> pa.Table:
    """Return rows of ``ARTICLES`` with consecutive ids; the same arguments give the same rows.

    Args:
        first: The first id.
        count: How many.
        name: A word in the title of each.
        centre: Put all vectors next to one point instead of spreading them.
    """
    ids = np.arange(first, first + count)
    rng = np.random.default_rng(first + 1)
    vectors = rng.random((count, DIMENSIONS), dtype=np.float32)
    if centre is not None:
        vectors = np.float32(centre) + vectors * np.float32(0.01)
    return pa.table(
        {
            "id": ids,
            "title": [f"{name} article{number % 50}" for number in ids],
            "topic": [f"topic{number % 5}" for number in ids],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS),
        },
        schema=ARTICLES,
    )


def make_articles_table(
    uri: str,
    *,
    rows: int = 2000,
    kinds: Collection[str] = INDEX_KINDS,
    maintained: Collection[str] = (),
    settings: Settings | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> BaseTable:
    """Create a table with indexes, a MemWAL index and one spec (id 1) of four buckets over ``id``.

    Args:
        uri: Where; nothing may be there.
        rows: Rows of the base table, ids from 0.
        kinds: Which indexes, of ``INDEX_KINDS`` or any other vector index.
        maintained: Indexes that MemTables maintain.
        settings: Values; defaults if None.
        storage_options: For remote stores.
    """
    dataset: Any = lance.write_dataset(articles(0, rows), uri, storage_options=dict(storage_options or {}) or None)
    for kind in kinds:
        if kind in _COLUMNS:
            dataset.create_scalar_index(_COLUMNS[kind], kind, name=f"{_COLUMNS[kind]}_idx")
        else:
            options = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
            dataset.create_index("vec", kind, name="vec_idx", num_partitions=4, **options)
    table = BaseTable.open(uri, storage_options=storage_options, settings=settings)
    spec = bucket_spec(1, "id", table.state().field_ids, _BUCKETS)
    table.create_mem_wal_index([spec], sorted(maintained))
    return table
