"""How plans and what ran name sources and nodes, in the words of the MemWAL specification."""

from __future__ import annotations

from collections.abc import Mapping

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

RegionNames = Mapping[RegionId, str]


def region_name(region_id: RegionId, names: RegionNames | None = None) -> str:
    """Return a region's display name; ``region_`` and the id where it has none."""
    return (names or {}).get(region_id, f"region_{region_id}")


def source_name(source: GenerationSource, names: RegionNames | None = None) -> str:
    """Return the name of a generation."""
    return f"{region_name(source.region_id, names)}[gen={source.generation}]"
