"""The value that identifies a region within its spec, and its form in the region manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.region_spec.model import RegionSpec
from memwal_core.format.region_spec.result_types import RegionScalar, decode_scalar, encode_scalar, parse_result_type

RegionValue: TypeAlias = tuple[RegionScalar | None, ...]
"""One component per field of the spec, in its order; None = NULL, which is a region of its own."""


def encode_region_value(spec: RegionSpec, value: RegionValue) -> dict[str, bytes]:
    """Return a region value as ``region_field_values`` of a region manifest.

    Field id -> little-endian Arrow scalar bytes; NULL components are left out.
    """
    if len(value) != len(spec.fields):
        raise InvalidRequestError(
            "this region value does not have one component per field of its spec",
            remedy="route with the spec that the value is encoded for",
            spec_id=spec.spec_id,
            expected=len(spec.fields),
            found=len(value),
        )
    return {
        field.field_id: encode_scalar(component, parse_result_type(field.result_type))
        for field, component in zip(spec.fields, value, strict=True)
        if component is not None
    }


def decode_region_value(spec: RegionSpec, stored: Mapping[str, bytes]) -> RegionValue:
    """Return the region value that a region manifest holds; the inverse of ``encode_region_value``.

    ``CorruptionError``: the manifest has values that are not of this spec, or of another type.
    """
    strangers = stored.keys() - {field.field_id for field in spec.fields}
    if strangers:
        raise CorruptionError(
            "a region manifest has values for fields that its spec does not have",
            remedy="change nothing; follow docs/runbooks/corrupt-region-manifest.md",
            spec_id=spec.spec_id,
            field_ids=sorted(strangers),
        )
    return tuple(
        decode_scalar(stored[field.field_id], parse_result_type(field.result_type))
        if field.field_id in stored
        else None
        for field in spec.fields
    )
