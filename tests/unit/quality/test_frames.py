"""Arrow's types as those of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType

from memwal_core.errors import InvalidRequestError
from memwal_core.quality.frames import cast_to_spark, spark_type, spark_types

WIDE = pa.decimal256(39, 2)


@pytest.mark.parametrize(
    "kind", [WIDE, pa.list_(WIDE), pa.struct([("a", pa.list_(WIDE, 2))]), pa.map_(pa.string(), WIDE), pa.float16()]
)
def test_a_type_that_spark_lacks_is_none_of_its_types(kind: pa.DataType) -> None:
    """Of decimals with more than 38 digits pyspark makes a type, at which Spark fails."""
    assert spark_type(kind) is None
    assert spark_types(pa.schema([("id", pa.int64()), ("lost", kind)])).names == ["id"]


def test_decimals_of_up_to_38_digits_have_a_type_however_arrow_stores_them() -> None:
    kinds = [pa.decimal256(38, 2), pa.decimal128(38, 2), pa.list_(pa.decimal256(5, 2))]
    assert [spark_type(kind) for kind in kinds[:2]] == [DecimalType(38, 2)] * 2
    assert spark_type(kinds[2]) is not None


def test_a_value_that_spark_cannot_represent_is_named_with_its_column() -> None:
    with pytest.raises(InvalidRequestError, match="cannot represent a value") as refused:
        cast_to_spark(pa.array([1], pa.timestamp("ns")), pa.field("at", pa.timestamp("us")))

    assert refused.value.facts["column"] == "at"
