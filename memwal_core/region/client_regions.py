"""Regions of LanceDB's client, which writes no region value: the id says it.

The client derives a region's id from its value, so that all its processes agree. This project's writer gives the same
id to a region of such a spec: else one key would lie in two regions as soon as both write.
"""

from __future__ import annotations

import hashlib
import uuid
from functools import lru_cache

from memwal_core.format.region_spec.model import RegionField, RegionSpec
from memwal_core.format.region_spec.region_value import RegionValue
from memwal_core.format.region_spec.result_types import encode_scalar, parse_result_type
from memwal_core.ids import RegionId
from memwal_core.region.spec.describe import UNSHARDED
from memwal_core.region.spec.parameters import HASH, NUM_BUCKETS
from memwal_core.text import whole_number

_NAMESPACE = uuid.UUID(bytes=b"LSMWRITE_SHARD01")
_FIELD_ID = "bucket"
"""Lance's builder names the only field so, whatever the transform."""
_NAME_BASED = 5
_MOST_BUCKETS = 1024


def is_client_spec(spec: RegionSpec) -> bool:
    """Return whether LanceDB's client would derive region ids from the values of a spec."""
    if len(spec.fields) != 1:
        return False
    (field,) = spec.fields
    return (
        field.field_id == _FIELD_ID
        and field.transform in {"bucket", "identity", UNSHARDED}
        and HASH not in field.parameters
    )


def is_client_region(spec: RegionSpec, region_id: RegionId) -> bool:
    """Return whether a region's id is derived from its value."""
    return is_client_spec(spec) and region_id.version == _NAME_BASED


def client_region_id(spec: RegionSpec, value: RegionValue) -> RegionId | None:
    """Return the id of the region that has a value; None if the client would not write such rows."""
    if not is_client_spec(spec):
        return None
    (field,), (component,) = spec.fields, value
    if component is None:
        return None
    if field.transform == UNSHARDED:
        name = UNSHARDED.encode()
    elif field.transform == "bucket":
        name = f"bucket-{component!r}".encode()
    else:
        name = b"identity-" + encode_scalar(component, parse_result_type(field.result_type))
    return _derived(name)


def client_region_value(spec: RegionSpec, region_id: RegionId) -> RegionValue | None:
    """Return the value of a region by its id; None if it is not the client's, or of an identity spec.

    Whether it has a given value of an identity spec is told by ``client_region_id``.
    """
    if not is_client_region(spec, region_id):
        return None
    (field,) = spec.fields
    if field.transform == UNSHARDED:
        return (0,) if region_id == _derived(UNSHARDED.encode()) else None
    number = _buckets(_count(field)).get(region_id) if field.transform == "bucket" else None
    return None if number is None else (number,)


def _derived(name: bytes) -> RegionId:
    # uuid5 takes bytes from Python 3.12 on.
    digest = hashlib.sha1(_NAMESPACE.bytes + name, usedforsecurity=False).digest()
    return RegionId(uuid.UUID(bytes=digest[:16], version=_NAME_BASED))


def _count(field: RegionField) -> int:
    return min(whole_number(field.parameters.get(NUM_BUCKETS, "")) or 0, _MOST_BUCKETS)


@lru_cache(maxsize=16)
def _buckets(count: int) -> dict[RegionId, int]:
    return {_derived(f"bucket-{number}".encode()): number for number in range(count)}
