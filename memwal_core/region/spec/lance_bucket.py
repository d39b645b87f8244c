"""The bucket formula of tables that pylance sharded, evaluated by pylance itself.

It differs from this project's in three ways: 8- to 32-bit integers are hashed as four bytes, the
sign bit is masked instead of taking ``abs``, and NULL falls into bucket 0. So promoting a 32-bit
column to 64 bits changes its buckets, and there is no SQL expression.
"""

from __future__ import annotations

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from memwal_core.errors import InvalidRequestError


def lance_bucket(values: pa.Array, num_buckets: int) -> pa.Array:
    """Return pylance's bucket number of each value: int32 in [0, num_buckets), never NULL.

    Values must have the width that the table's schema gives the column. A type that pylance cannot hash
    is refused; no table of pylance's has such a bucket, so the spec is wrong.
    """
    if pa.types.is_null(values.type):
        # A dropped column counts as NULL, whose bucket does not depend on the type.
        values = values.cast(pa.int64())
    if not _is_supported(values.type):
        raise InvalidRequestError(
            "pylance's bucket cannot hash this type",
            remedy="create the bucket with parameters['hash'] = 'murmur3_x86_32', which hashes it",
            type=str(values.type),
        )
    batch = pa.record_batch([values], names=["col0"])
    spec = lance.ShardingSpec(
        spec_id=1,
        fields=[
            lance.ShardingField(
                field_id="bucket",
                source_ids=[0],
                transform="bucket",
                result_type="int32",
                parameters={"num_buckets": str(num_buckets)},
            )
        ],
    )
    return lance.evaluate_sharding_spec(batch, spec, LanceSchema.from_pyarrow(batch.schema)).column(0)


def _is_supported(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_float32(data_type)
        or pa.types.is_float64(data_type)
    )
