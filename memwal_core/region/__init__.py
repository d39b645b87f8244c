"""Region manifests: the state of each region, its invariants and its versions.

Owns ``_mem_wal/<region>/manifest/``. Every change of a region is a function of ``changes``, applied
with ``ManifestStore.update``.
"""

from memwal_core.format.region_manifest.model import (
    BASE_TABLE_GENERATION,
    FIRST_GENERATION,
    FlushedGeneration,
    RegionManifest,
    RegionStatus,
)
from memwal_core.region.changes import claim_epoch, drain, raise_wal_hint, record_flush, restore_generation
from memwal_core.region.fence import check_epoch, claim
from memwal_core.region.invariants import Violation, manifest_violations, transition_violations
from memwal_core.region.store import ManifestObserver, ManifestStore

__all__ = [
    "BASE_TABLE_GENERATION",
    "FIRST_GENERATION",
    "FlushedGeneration",
    "ManifestObserver",
    "ManifestStore",
    "RegionManifest",
    "RegionStatus",
    "Violation",
    "check_epoch",
    "claim",
    "claim_epoch",
    "drain",
    "manifest_violations",
    "raise_wal_hint",
    "record_flush",
    "restore_generation",
    "transition_violations",
]
