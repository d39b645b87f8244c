"""Vector indexes that are defined but not trained: what Lance makes where a table has too few vectors.

Such an index has a name and parameters but neither centroids nor a file. Queries scan all rows, and
Lance trains it in the first extension that finds enough vectors. Seen with pylance 14.0.2: product
quantizers need one vector per codebook entry, the other kinds need one.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import lance

from memwal_core.base_table.indexes.inventory import is_vector_index
from memwal_core.format.lance_field import field_path
from memwal_core.format.paths import INDEX_DIRECTORY
from memwal_core.storage.protocol import ObjectStore

_MODEL_FILE = "index.idx"
_PRODUCT = "pq"
_DEFAULT_BITS = 8


def is_trained(store: ObjectStore, index: lance.IndexDescription, fragments: Set[int]) -> bool:
    """Return whether queries can use an index; scalar ones need no training.

    Of a vector index whose last row is gone, in a table that has others, Lance forgets the model: the next extension
    trains it anew. Asks storage only about vector indexes of a table without rows.

    Args:
        store: The table's store.
        index: The index.
        fragments: Those of the version.
    """
    if not is_vector_index(str(index.index_type)):
        return True
    covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
    if covered or fragments:
        return not fragments or bool(covered & fragments)
    paths = (f"{INDEX_DIRECTORY}/{segment.uuid}/{_MODEL_FILE}" for segment in index.segments)
    return any(store.head(path) is not None for path in paths)


def vectors_missing(dataset: lance.LanceDataset, index: lance.IndexDescription) -> int:
    """Return how many vectors a table lacks before Lance can train an index; NULL is not a vector."""
    needed = _vectors_needed(index.details or {})
    names = field_path(dataset.lance_schema.fields(), int(index.fields[0]))
    column = ".".join("`" + name.replace("`", "``") + "`" for name in names)
    # The count matters only up to the number needed, so no more rows are read.
    found = dataset.scanner(columns=[], filter=f"{column} IS NOT NULL", limit=needed, with_row_address=True)
    return max(0, needed - int(found.to_table().num_rows))


def _vectors_needed(details: dict[str, Any]) -> int:
    compression = details.get("compression") or {}
    if compression.get("type") != _PRODUCT:
        return 1
    return 1 << int(compression.get("num_bits") or _DEFAULT_BITS)
