"""Validation of specs that are about to be created: refused, accepted, or accepted with warnings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionField, RegionSpec
from memwal_core.format.region_spec.result_types import parse_result_type, types_agree
from memwal_core.region.spec.evaluate import evaluate_field, natural_values, wrong_result_type
from memwal_core.region.spec.parameters import uses_lance_hash
from memwal_core.region.spec.transforms import find_transform

UNKNOWN_SOURCE = "unknown_source"
LANCE_HASH = "lance_hash"

_LARGEST_SPEC_ID = 2**32 - 1
_NULL_ROWS = 3


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """A legal property of a spec that may lose data or surprise.

    Attributes:
        code: ``unknown_source`` or ``lance_hash``.
        message: What may happen, one sentence.
    """

    code: str
    field_id: str
    message: str


def validate_spec(
    spec: RegionSpec, schema_fields: Mapping[int, pa.Field], primary_key: Collection[int] | None
) -> tuple[SpecWarning, ...]:
    """Validate a spec against the table it shall divide.

    Types are determined by evaluating each field on no rows and on NULLs, with the code that
    routes, so what is accepted here can be routed.

    Args:
        spec: About to be created.
        schema_fields: Schema field id -> Arrow field, for all top-level columns.
        primary_key: Schema field ids of the primary key, which has to determine the region; None if the
            regions exist, so that it is too late to ask.

    Returns:
        Warnings; empty when nothing is wrong.

    Raises:
        InvalidRequestError: The spec cannot be used; correct it. Nothing was written.
    """
    if not 0 < spec.spec_id <= _LARGEST_SPEC_ID:
        raise InvalidRequestError(
            "a spec id must be positive and fit 32 bits",
            remedy="use the id that next_spec_id gives; 0 stands for regions without a spec",
            spec_id=spec.spec_id,
        )
    seen: set[str] = set()
    for field in spec.fields:
        if not field.field_id or field.field_id in seen:
            raise InvalidRequestError(
                "region field ids must be unique within their spec and not empty",
                remedy="rename the region field",
                spec_id=spec.spec_id,
                field_id=field.field_id,
            )
        seen.add(field.field_id)
        _check_field(field, schema_fields)
        if primary_key is not None:
            _check_sources(field, schema_fields, primary_key)
    return tuple(warning for field in spec.fields for warning in _field_warnings(field, schema_fields))


def validate_new_spec(
    spec: RegionSpec,
    existing: Sequence[RegionSpec],
    schema_fields: Mapping[int, pa.Field],
    primary_key: Collection[int] | None,
) -> tuple[SpecWarning, ...]:
    """Validate a spec that joins ``existing`` ones, whose ids it may not repeat; see ``validate_spec``."""
    if any(spec.spec_id == other.spec_id for other in existing):
        raise InvalidRequestError(
            "this spec id is taken",
            remedy="use the id that next_spec_id gives; ids are never reused",
            spec_id=spec.spec_id,
        )
    return validate_spec(spec, schema_fields, primary_key)


def _check_field(field: RegionField, schema_fields: Mapping[int, pa.Field]) -> None:
    expected = parse_result_type(field.result_type)
    known = {source_id: schema_fields[source_id] for source_id in field.source_ids if source_id in schema_fields}
    found = natural_values(field, {source_id: pa.array([], column.type) for source_id, column in known.items()}, 0).type
    # A transform's type is known exactly; the type of an expression depends on the planner.
    is_exact = field.transform is not None and find_transform(field).run is not None
    agrees = found.equals(expected) or pa.types.is_null(found) if is_exact else types_agree(found, expected)
    if not agrees:
        raise wrong_result_type(field, found)
    _check_repeatable(field, {source_id: pa.nulls(_NULL_ROWS, column.type) for source_id, column in known.items()})


def _check_repeatable(field: RegionField, columns: Mapping[int, pa.Array]) -> None:
    """Refuse fields whose value differs between equal rows or between two evaluations.

    A second line of defence behind the forbidden words, for functions of newer DataFusion versions.
    """
    first, second = (evaluate_field(field, columns, _NULL_ROWS) for _ in range(2))
    if not first.equals(second) or len(first.unique()) > 1:
        raise InvalidRequestError(
            "a region field gives different values for equal rows",
            remedy="use only deterministic functions that do not depend on time or session",
            field_id=field.field_id,
            expression=field.expression,
        )


def _check_sources(field: RegionField, schema_fields: Mapping[int, pa.Field], primary_key: Collection[int]) -> None:
    """Refuse fields that the key does not determine: versions of a row would lie in several regions."""
    foreign = [source_id for source_id in field.source_ids if source_id not in primary_key]
    if foreign:
        raise InvalidRequestError(
            "columns outside of the primary key decide the region, so it would be unknown which of two versions of "
            "a row is the newer one",
            remedy="make them part of the key, or divide by buckets of the key, as in bucket(COLUMN, N)",
            field_id=field.field_id,
            columns=[schema_fields[each].name if each in schema_fields else each for each in foreign],
            key=[schema_fields[each].name for each in primary_key],
        )


def _field_warnings(field: RegionField, schema_fields: Mapping[int, pa.Field]) -> list[SpecWarning]:
    warnings = []
    unknown = [source_id for source_id in field.source_ids if source_id not in schema_fields]
    if unknown:
        warnings.append(
            SpecWarning(
                UNKNOWN_SOURCE,
                field.field_id,
                f"source ids {unknown} are not in the schema and count as NULL in every row",
            )
        )
    if field.transform == "bucket" and uses_lance_hash(field):
        warnings.append(
            SpecWarning(
                LANCE_HASH,
                field.field_id,
                "pylance's bucket formula: widening a 32-bit key column to 64 bits moves its rows to other regions",
            )
        )
    return warnings
