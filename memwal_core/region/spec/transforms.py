"""The well-known transforms: what each takes, gives and computes, over whole columns.

Each transform also has a SQL form (``derive``); the vectorised form here gives the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import RegionField
from memwal_core.region.spec.lance_bucket import lance_bucket
from memwal_core.region.spec.murmur3 import murmur3_multi
from memwal_core.region.spec.parameters import num_buckets, uses_lance_hash, width

Run: TypeAlias = Callable[[RegionField, Sequence[pa.Array]], pa.Array]
Derive: TypeAlias = Callable[[RegionField], str]


@dataclass(frozen=True, slots=True)
class Transform:
    """One well-known transform.

    Attributes:
        run: Evaluates over plain arrays of equal length, one per source; None where the derived
            expression is evaluated instead.
        derive: Gives the equivalent SQL expression over ``col0``...
        sources: Least and most sources; None = no upper limit.
        result_type: Arrow type of the value; None = that of the source.
    """

    run: Run | None
    derive: Derive
    sources: tuple[int, int | None] = (1, 1)
    result_type: pa.DataType | None = None


def find_transform(field: RegionField) -> Transform:
    """Return the transform that a field names; refuse an unknown name and a wrong number of sources."""
    transform = TRANSFORMS.get(field.transform or "")
    if transform is None:
        raise InvalidRequestError(
            "this transform is unknown",
            remedy="use a known transform or write an expression",
            field_id=field.field_id,
            transform=field.transform,
            known=", ".join(TRANSFORMS),
        )
    least, most = transform.sources
    if len(field.source_ids) < least or (most is not None and len(field.source_ids) > most):
        raise InvalidRequestError(
            "the number of source columns does not fit this transform",
            remedy="correct source_ids of the region field",
            field_id=field.field_id,
            transform=field.transform,
            sources=len(field.source_ids),
            least=least,
            most=most,
        )
    return transform


def bucket_of_hash(hashes: pa.Array, buckets: int) -> pa.Array:
    """Return ``abs(hash) % buckets`` as int32; NULL for NULL.

    The int32 hashes are widened first, because the absolute value of -2147483648 is not an int32 (D-30).
    """
    return pc.remainder(pc.abs(hashes.cast(pa.int64())), pa.scalar(buckets, pa.int64())).cast(pa.int32())


_PER_DAY = {"day": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_DAYS_OF_ARROW = (-12_687_063, 11_248_373)
"""From the first day of the year -32766 until that of 32767: zones move a moment into another year."""


def _identity(field: RegionField, columns: Sequence[pa.Array]) -> pa.Array:  # noqa: ARG001 - the signature of Run
    return columns[0]


def _date_part(part: str) -> Run:
    compute = {"year": pc.year, "month": pc.month, "day": pc.day, "hour": pc.hour}[part]

    def run(field: RegionField, columns: Sequence[pa.Array]) -> pa.Array:
        moments = columns[0]
        if pa.types.is_null(moments.type):
            return moments
        if part == "hour" and pa.types.is_date(moments.type):
            moments = moments.cast(pa.timestamp("ms"))
        if not (
            pa.types.is_timestamp(moments.type)
            or pa.types.is_date(moments.type)
            or (part == "hour" and pa.types.is_time(moments.type))
        ):
            _refuse_type(field, moments.type, "a date or timestamp")
        if not pa.types.is_time(moments.type):
            _require_years_of_arrow(field, moments)
        return compute(moments).cast(pa.int32())

    return run


def _require_years_of_arrow(field: RegionField, moments: pa.Array) -> None:
    """Refuse years of more than 16 bits, of which Arrow makes others than Lance, so that rows would lie elsewhere."""
    width = pa.int32() if pa.types.is_date32(moments.type) else pa.int64()
    found = pc.min_max(moments.cast(width)).as_py()
    a_day = _PER_DAY["day" if pa.types.is_date32(moments.type) else getattr(moments.type, "unit", "ms")]
    first, last = (day * a_day for day in _DAYS_OF_ARROW)
    if found["min"] is not None and not first <= found["min"] <= found["max"] < last:
        raise InvalidRequestError(
            "a year does not fit 16 bits, so it cannot tell the region of its row",
            remedy="correct the date, or divide the table by another column",
            field_id=field.field_id,
            transform=field.transform,
            type=str(moments.type),
            stored=found["min"] if found["min"] < first else found["max"],
        )


def _truncate(field: RegionField, columns: Sequence[pa.Array]) -> pa.Array:
    values, size = columns[0], width(field)
    if pa.types.is_null(values.type):
        return values
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, size)
    if not pa.types.is_integer(values.type):
        _refuse_type(field, values.type, "text or an integer")
    # The width may not fit a narrow source, the result always does: it is nearer to zero.
    wide = values if pa.types.is_uint64(values.type) else values.cast(pa.int64())
    return pc.subtract(wide, pc.remainder(wide, pa.scalar(size, wide.type))).cast(values.type)


def _bucket(field: RegionField, columns: Sequence[pa.Array]) -> pa.Array:
    if uses_lance_hash(field):
        return lance_bucket(columns[0], num_buckets(field))
    return bucket_of_hash(murmur3_multi(columns), num_buckets(field))


def _refuse_type(field: RegionField, found: pa.DataType, expected: str) -> NoReturn:
    raise InvalidRequestError(
        "this transform does not accept the type of its source column",
        remedy="use another column or write an expression that casts it",
        field_id=field.field_id,
        transform=field.transform,
        type=str(found),
        expected=expected,
    )


def _derive_bucket(field: RegionField) -> str:
    if uses_lance_hash(field):
        raise InvalidRequestError(
            "pylance's bucket has no SQL expression",
            remedy="evaluate the field instead; specs created here have one",
            field_id=field.field_id,
        )
    return f"abs(murmur3(col0)) % {num_buckets(field)}"


def _derive_multi_bucket(field: RegionField) -> str:
    arguments = ", ".join(f"col{position}" for position in range(len(field.source_ids)))
    return f"abs(murmur3_multi({arguments})) % {num_buckets(field)}"


def _derive_truncate(field: RegionField) -> str:
    size = width(field)
    return f"left(col0, {size})" if "utf8" in field.result_type else f"col0 - (col0 % {size})"


def _date_part_transform(part: str) -> Transform:
    return Transform(_date_part(part), lambda _: f"date_part('{part}', col0)", result_type=pa.int32())


TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "identity": Transform(_identity, lambda _: "col0"),
        "year": _date_part_transform("year"),
        "month": _date_part_transform("month"),
        "day": _date_part_transform("day"),
        "hour": _date_part_transform("hour"),
        "bucket": Transform(_bucket, _derive_bucket, result_type=pa.int32()),
        "multi_bucket": Transform(_bucket, _derive_multi_bucket, (1, None), pa.int32()),
        "truncate": Transform(_truncate, _derive_truncate),
        "unsharded": Transform(None, lambda _: "0", (0, 0), pa.int32()),
    }
)
"""By name. ``unsharded`` is pylance's word for one region that takes every row."""
