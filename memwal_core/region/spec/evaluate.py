"""The one evaluation of region fields, shared by routing, pruning and validation (SPEC-38)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionField, RegionSpec
from memwal_core.format.region_spec.result_types import parse_result_type, types_agree
from memwal_core.region.spec.columns import Column, plain_array
from memwal_core.region.spec.transforms import find_transform

_FIRST_DAY, _LAST_DAY = ((each - date(1970, 1, 1)).days for each in (date.min, date.max))


def evaluate_spec(spec: RegionSpec, columns: Mapping[int, Column], num_rows: int) -> tuple[pa.Array, ...]:
    """Return the values of all fields of a spec, in their order; see ``evaluate_field``."""
    return tuple(evaluate_field(field, columns, num_rows) for field in spec.fields)


def evaluate_field(field: RegionField, columns: Mapping[int, Column], num_rows: int) -> pa.Array:
    """Return the region field's value of every row, in the field's result type.

    ``columns`` maps schema field ids to ``num_rows`` values each. A source id that is absent is a column
    that the schema does not have, and counts as NULL. ``InvalidRequestError``: the field is not valid, a
    value does not fit the result type, or the columns do not fit the field.
    """
    expected = parse_result_type(field.result_type)
    found = natural_values(field, columns, num_rows)
    if not types_agree(found.type, expected):
        raise wrong_result_type(field, found.type)
    try:
        values = found.cast(expected)
        if pa.types.is_date64(expected):
            # Moments of one day are different values to Arrow, and one region value to everybody else.
            values.validate(full=True)
        _require_years_of_python(field, values)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            "a region value does not fit its field's result type",
            remedy="create a spec with a wider result type",
            field_id=field.field_id,
            result_type=field.result_type,
            problem=str(error),
        ) from error
    return values


def _require_years_of_python(field: RegionField, values: pa.Array) -> None:
    """Refuse a date that is no region value: those are Python's, and have the years 1 to 9999."""
    if not pa.types.is_date(values.type):
        return
    found = pc.min_max(values.cast(pa.date32()).cast(pa.int32())).as_py()
    if found["min"] is not None and not _FIRST_DAY <= found["min"] <= found["max"] <= _LAST_DAY:
        raise InvalidRequestError(
            "a date outside of the years 1 to 9999 is no region value",
            remedy="correct the date, or divide the table by an expression that makes a number of it",
            field_id=field.field_id,
            days_since_1970=found["min"] if found["min"] < _FIRST_DAY else found["max"],
        )


def wrong_result_type(field: RegionField, found: pa.DataType) -> InvalidRequestError:
    """Return the error that says that the values of a field have another type than it names."""
    return InvalidRequestError(
        "the values of a region field do not have its result type",
        remedy="correct result_type, or cast inside the expression",
        field_id=field.field_id,
        result_type=field.result_type,
        found=str(found),
    )


def natural_values(field: RegionField, columns: Mapping[int, Column], num_rows: int) -> pa.Array:
    """Return the values in the type that evaluation gives, before the cast to the result type."""
    sources = [_source(field, columns.get(source_id), num_rows) for source_id in field.source_ids]
    expression = _own_expression(field)
    if expression is not None:
        return _evaluated(expression, sources, num_rows)
    transform = find_transform(field)
    if transform.run is None:
        return _evaluated(transform.derive(field), sources, num_rows)
    return transform.run(field, [pa.nulls(num_rows) if source is None else source for source in sources])


def _evaluated(expression: str, sources: Sequence[Column], num_rows: int) -> pa.Array:
    # DataFusion takes a sixth of a second to import, which most specs do not need.
    from memwal_core.region.spec.expression import evaluate_expression  # noqa: PLC0415

    return evaluate_expression(expression, sources, num_rows)


def _own_expression(field: RegionField) -> str | None:
    """Return the field's expression, None when it has a transform; refuse a field with both or neither."""
    if (field.transform is None) == (field.expression is None):
        raise InvalidRequestError(
            "a region field needs either a transform or an expression",
            remedy="set exactly one of the two",
            field_id=field.field_id,
            transform=field.transform,
            expression=field.expression,
        )
    return field.expression


def _source(field: RegionField, column: Column | None, num_rows: int) -> pa.Array | None:
    if column is None:
        return None
    if len(column) != num_rows:
        raise InvalidRequestError(
            "a source column has the wrong number of rows",
            remedy="pass columns of one batch",
            field_id=field.field_id,
            expected=num_rows,
            found=len(column),
        )
    return plain_array(column)
