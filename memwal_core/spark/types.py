"""Arrow types as Spark has them, and batches of rows cast to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from memwal_core.errors import InvalidRequestError
from memwal_core.native.casting import IN_PLACE_OF_UNSIGNED
from memwal_core.quality.frames import cast_to_spark, spark_type

FRESHNESS_FIELD = "memwal:freshness"
"""Metadata of the first column of a DataFrame: the ``Freshness`` of its rows as JSON."""

_WIDER = {
    **IN_PLACE_OF_UNSIGNED,
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
}
"""Types that Spark lacks, and the type it has that holds all their values."""


def spark_schema(schema: pa.Schema, freshness: Mapping[str, object] | None = None) -> StructType:
    """Return the Spark schema of rows, with ``freshness`` in the metadata of the first column.

    Unsigned integers and half floats become the next wider type, vectors become arrays, timestamps have
    microseconds; those without a time zone are ``timestamp_ntz``. Refuses types that Spark does not have.
    """
    fields = []
    for number, field in enumerate(schema):
        kind = spark_type(_plain(field.type))
        if kind is None:
            raise InvalidRequestError(
                "Spark has no type for a column",
                remedy="name the other columns in option `columns`",
                column=field.name,
                type=str(field.type),
            )
        stated = {FRESHNESS_FIELD: json.dumps(freshness, sort_keys=True)} if freshness and number == 0 else None
        fields.append(StructField(field.name, kind, field.nullable, stated))
    return StructType(fields)


def same_types(one: StructType, other: StructType) -> bool:
    """Tell whether two schemas have the same columns and types, regardless of what may be NULL."""
    return [(each.name, each.dataType.simpleString()) for each in one] == [
        (each.name, each.dataType.simpleString()) for each in other
    ]


def cast_batches(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches (columns as in ``schema``) in exactly the Arrow schema that Spark expects.

    Refuses a value that Spark cannot represent, for example a timestamp with nanoseconds.
    """
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in batches:
        columns = [cast_to_spark(batch.column(field.name), field) for field in wanted]
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the nearest type that Spark has, nested types included."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(number)) for number in range(kind.num_fields)])
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return pa.list_(_plain_field(kind.value_field)) if is_list else kind


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain(field.type), field.nullable)
