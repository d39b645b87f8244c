"""The content of the MemWAL index: details and region snapshots, as values.

Owns no state: ``base_table`` reads and writes the index. Holds the models, their byte forms (``codec``
for the details, ``snapshot_file`` for the snapshot) and the rules that every change must keep
(``rules``). May import region specs, region manifests and the layers below.
"""

from memwal_core.format.memwal_index.details import (
    MEM_WAL_DETAILS_TYPE_URL,
    MEM_WAL_INDEX_NAME,
    MemWalIndexDetails,
    is_internal_index,
)

__all__ = [
    "MEM_WAL_DETAILS_TYPE_URL",
    "MEM_WAL_INDEX_NAME",
    "MemWalIndexDetails",
    "is_internal_index",
]
