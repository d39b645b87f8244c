"""How plans and what ran name sources and nodes, in the words of the MemWAL specification."""

from __future__ import annotations

from memwal_core.format.region_manifest.model import BASE_TABLE_GENERATION
from memwal_core.ids import RegionId
from memwal_core.reader.plan.sources import GenerationSource

BASE = f"base_table[gen={BASE_TABLE_GENERATION}]"

SCAN = "ScanExec"
GUARD = "BloomFilterGuardExec"
TAKE_LAST = "TakeLastExec"
NEAREST = "KNNExec"
WORDS = "FTSExec"
STALE = "FilterStaleExec"


def region_name(region_id: RegionId) -> str:
    """Return the name of a region."""
    return f"region_{region_id}"


def source_name(source: GenerationSource) -> str:
    """Return the name of a generation."""
    return f"{region_name(source.region_id)}[gen={source.generation}]"
