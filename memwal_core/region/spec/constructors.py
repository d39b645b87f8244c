"""Region specs in one call, for the usual ways to divide a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_spec.model import MANUAL_SPEC_ID, RegionField, RegionSpec
from memwal_core.format.region_spec.result_types import result_type_name
from memwal_core.region.spec.columns import plain_type
from memwal_core.region.spec.parameters import HASH, MURMUR3_X86_32, NUM_BUCKETS


def bucket_spec(spec_id: int, column: str, field_ids: Mapping[str, int], num_buckets: int) -> RegionSpec:
    """Return a spec with the field ``{column}_bucket``, which spreads rows over buckets of one column's hash.

    Args:
        spec_id: Positive and never used before in the table (``next_spec_id``).
        column: The key column to hash.
        field_ids: Column name -> schema field id.
        num_buckets: Largest number of regions with a non-NULL key. It cannot be changed later
            without a new spec.

    Returns:
        The spec, not yet validated.

    Raises:
        InvalidRequestError: The column is unknown.
    """
    field = RegionField(
        field_id=f"{column}_bucket",
        source_ids=_source_ids([column], field_ids),
        transform="bucket",
        parameters={NUM_BUCKETS: str(num_buckets), HASH: MURMUR3_X86_32},
    )
    return RegionSpec(spec_id, (field,))


def multi_bucket_spec(
    spec_id: int, columns: Sequence[str], field_ids: Mapping[str, int], num_buckets: int, *, field_id: str | None = None
) -> RegionSpec:
    """Return a spec that spreads rows over buckets of the hash of several columns.

    Args:
        spec_id: Positive and never used before in the table (``next_spec_id``).
        columns: The key columns to hash, in this order.
        field_ids: Column name -> schema field id.
        num_buckets: Largest number of regions with a non-NULL key. It cannot be changed later
            without a new spec.
        field_id: Name of the region field; the column names and ``bucket`` joined by ``_`` by
            default.

    Returns:
        The spec, not yet validated.

    Raises:
        InvalidRequestError: A column is unknown.
    """
    field = RegionField(
        field_id=field_id or "_".join([*columns, "bucket"]),
        source_ids=_source_ids(columns, field_ids),
        transform="multi_bucket",
        parameters={NUM_BUCKETS: str(num_buckets), HASH: MURMUR3_X86_32},
    )
    return RegionSpec(spec_id, (field,))


def identity_spec(spec_id: int, column: pa.Field, field_ids: Mapping[str, int]) -> RegionSpec:
    """Return a spec with one region per value of a column, whose field has the column's name.

    Args:
        spec_id: Positive and never used before in the table (``next_spec_id``).
        column: The column's Arrow field; its type becomes the result type.
        field_ids: Column name -> schema field id.

    Returns:
        The spec, not yet validated.

    Raises:
        InvalidRequestError: The column is unknown, or its type cannot identify a region.
    """
    field = RegionField(
        field_id=column.name,
        source_ids=_source_ids([column.name], field_ids),
        transform="identity",
        result_type=result_type_name(plain_type(column.type)),
    )
    return RegionSpec(spec_id, (field,))


def next_spec_id(used: Iterable[int]) -> int:
    """Return a spec id that was never used.

    Args:
        used: Every id that the index or any region manifest has ever named; dropped specs live on
            in the manifests of their regions.
    """
    return max(used, default=MANUAL_SPEC_ID) + 1


def _source_ids(columns: Sequence[str], field_ids: Mapping[str, int]) -> tuple[int, ...]:
    for column in columns:
        if column not in field_ids:
            raise InvalidRequestError(
                "this column is not in the table's schema",
                remedy="name a top-level column of the table",
                column=column,
                known=", ".join(sorted(field_ids)),
            )
    return tuple(field_ids[column] for column in columns)
