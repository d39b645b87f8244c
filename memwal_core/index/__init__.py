"""The content of the MemWAL index: details and region snapshots, as values.

Owns no state: ``base_table`` is where the index is read from and written to. Holds the models,
their byte forms (``codec`` for the details, ``snapshot_file`` for the snapshot) and the rules that
every change must keep (``rules``). May import region specs, region manifests and what lies below.
"""

from memwal_core.index.details import (
    DEFAULT_INLINE_SNAPSHOT_THRESHOLD,
    MEM_WAL_DETAILS_TYPE_URL,
    MEM_WAL_INDEX_NAME,
    MemWalIndexDetails,
)

__all__ = [
    "DEFAULT_INLINE_SNAPSHOT_THRESHOLD",
    "MEM_WAL_DETAILS_TYPE_URL",
    "MEM_WAL_INDEX_NAME",
    "MemWalIndexDetails",
]
