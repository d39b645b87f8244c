"""Which value a region has: what its manifest says, or what its id tells."""

from __future__ import annotations

from memwal_core.format.region_manifest.model import RegionManifest, RegionStatus
from memwal_core.region.client_regions import client_region_value
from memwal_core.region.spec import RegionSpec, RegionValue, decode_region_value


def states_its_value(manifest: RegionManifest) -> bool:
    """Tell whether a region's recorded value can be relied on.

    pylance's writer opens regions under any id without recording a value, which looks like the value NULL; regions that
    this project creates for NULL are SEALED from the beginning.
    """
    return bool(manifest.region_field_values) or manifest.status is RegionStatus.SEALED


def known_value(spec: RegionSpec, manifest: RegionManifest) -> RegionValue | None:
    """Return the value of a region of a spec, for those who write it; None if nothing tells it.

    A value that only the id tells is no promise about the rows: LanceDB's client can be told to route a batch by its
    first row. Who leaves rows out by a value asks ``states_its_value``.

    ``CorruptionError``: the manifest has values that are not of this spec.
    """
    if states_its_value(manifest):
        return decode_region_value(spec, manifest.region_field_values)
    return client_region_value(spec, manifest.region_id)
