"""Transform parameters: text in the spec, checked numbers here."""

from __future__ import annotations

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionField
from memwal_core.text import whole_number

NUM_BUCKETS = "num_buckets"
WIDTH = "width"
HASH = "hash"

MURMUR3_X86_32 = "murmur3_x86_32"
"""Value of ``hash`` for this project's bucket formula; without it a bucket is pylance's."""

LARGEST_NUM_BUCKETS = 2**31 - 1
"""A bucket number is an int32."""


def num_buckets(field: RegionField) -> int:
    """Return the number of buckets of a field; refuse one that is missing or not in 1..``LARGEST_NUM_BUCKETS``."""
    return _positive(field, NUM_BUCKETS, LARGEST_NUM_BUCKETS)


def width(field: RegionField) -> int:
    """Return the width of a ``truncate`` field; refuse one that is missing, not positive or beyond int64."""
    return _positive(field, WIDTH, 2**63 - 1)


def uses_lance_hash(field: RegionField) -> bool:
    """Tell whether a bucket follows pylance's formula instead of this project's.

    An unknown hash is refused: routing with another one would put a key into two regions.
    """
    found = field.parameters.get(HASH)
    if found is None:
        return field.transform == "bucket"
    if found != MURMUR3_X86_32:
        raise InvalidRequestError(
            "this region field uses an unknown hash",
            remedy="upgrade to a version that knows the hash, or create the field with the known one",
            field_id=field.field_id,
            hash=found,
            known=MURMUR3_X86_32,
        )
    return False


def _positive(field: RegionField, name: str, largest: int) -> int:
    text = field.parameters.get(name)
    if text is None:
        raise InvalidRequestError(
            "a transform parameter is missing",
            remedy="add the parameter to the region field",
            field_id=field.field_id,
            transform=field.transform,
            parameter=name,
        )
    number = whole_number(text) or 0
    if not 0 < number <= largest:
        raise InvalidRequestError(
            "a transform parameter is not a positive integer in range",
            remedy="use a whole number from 1 to `largest`",
            field_id=field.field_id,
            transform=field.transform,
            parameter=name,
            value=text,
            largest=largest,
        )
    return number
