"""The MemWAL index details as values: configuration, progress and the region snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from memwal_core.format.region_spec.model import RegionSpec
from memwal_core.ids import RegionId

MEM_WAL_INDEX_NAME = "__lance_mem_wal"
_INTERNAL_PREFIX = "__"
MEM_WAL_DETAILS_TYPE_URL = "/lance.table.MemWalIndexDetails"


def is_internal_index(name: str) -> bool:
    """Return whether an index belongs to the table format, as that of MemWAL does, and not to whoever queries."""
    return name.startswith(_INTERNAL_PREFIX)


@dataclass(frozen=True, slots=True)
class MemWalIndexDetails:
    """Content of the one MemWAL index of a table.

    Attributes:
        snapshot_ts_millis: When the region snapshot was built, Unix milliseconds; 0 = never.
        num_regions: Rows of the region snapshot; tells its storage form without reading it.
        inline_snapshots: The snapshot as Lance file bytes; None when unset.
        merged_generations: Region -> highest generation merged into the base table. A region
            without an entry has merged nothing.
        index_catchup: Index name -> region -> highest merged generation the index covers. A
            missing index or region has NOT caught up (decision 0005).
        unknown: Wire bytes of fields this version does not know, kept on rewrite.
    """

    snapshot_ts_millis: int = 0
    num_regions: int = 0
    inline_snapshots: bytes | None = field(default=None, repr=False)
    region_specs: tuple[RegionSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    merged_generations: Mapping[RegionId, int] = field(default_factory=lambda: MappingProxyType({}))
    index_catchup: Mapping[str, Mapping[RegionId, int]] = field(default_factory=lambda: MappingProxyType({}))
    unknown: bytes = field(default=b"", repr=False)

    def merged_generation(self, region_id: RegionId) -> int:
        """Return the highest merged generation of a region; 0 if nothing was merged."""
        return self.merged_generations.get(region_id, 0)
