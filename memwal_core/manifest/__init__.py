"""Region manifests: the state of each region, its invariants and its versions.

Owns ``_mem_wal/<region>/manifest/``. Whoever changes a region does so with a function of
``changes`` through ``ManifestStore.update``. May import the register and storage.
"""

from memwal_core.manifest.changes import claim_epoch, drain, raise_wal_hint, record_flush
from memwal_core.manifest.fence import check_epoch, claim
from memwal_core.manifest.invariants import Violation, manifest_violations, transition_violations
from memwal_core.manifest.model import (
    BASE_TABLE_GENERATION,
    FIRST_GENERATION,
    FlushedGeneration,
    RegionManifest,
    RegionStatus,
)
from memwal_core.manifest.store import ManifestStore

__all__ = [
    "BASE_TABLE_GENERATION",
    "FIRST_GENERATION",
    "FlushedGeneration",
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
    "transition_violations",
]
