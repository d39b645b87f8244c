from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.writer.admission.validate import conform

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)


def _batch(**columns: object) -> pa.Table:
    plain: dict[str, object] = {
        "id": [1, 2],
        "name": ["a", None],
        "vec": pa.array([[1, 2], [3, 4]], SCHEMA.field("vec").type),
    }
    return pa.table({**plain, **columns})


@pytest.mark.req("WRT-27")
def test_columns_in_another_order_are_reordered() -> None:
    taken = conform(_batch().select(["vec", "id", "name"]), SCHEMA, ["id"])
    assert taken.schema.names == SCHEMA.names


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2], pa.uint32()),
        pa.array([1, 2], pa.int64()).dictionary_encode(),
    ],
)
def test_narrower_and_encoded_integers_are_widened(column: pa.Array) -> None:
    assert conform(_batch(id=column), SCHEMA, ["id"]).column("id").type == pa.int64()


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize("column", [pa.array(["x", "y"], pa.large_string()), pa.nulls(2)])
def test_lossless_text_forms_are_taken(column: pa.Array) -> None:
    assert conform(_batch(name=column), SCHEMA, ["id"]).column("name").type == pa.string()


@pytest.mark.req("WRT-27")
def test_list_vectors_of_the_right_length_become_fixed_size() -> None:
    assert conform(
        _batch(vec=[[1.0, 2.0], [3.0, 4.0]]),
        SCHEMA.set(2, pa.field("vec", pa.list_(pa.float64(), 2))),
        ["id"],
    )


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    ("found", "wanted", "bad"),
    [
        (pa.array([0, 255], pa.int16()), pa.uint8(), pa.array([0, 256], pa.int16())),
        (pa.array([0, 1], pa.int32()), pa.uint16(), pa.array([0, -1], pa.int32())),
        (pa.array([0, 2**32 - 1], pa.int64()), pa.uint32(), pa.array([0, 2**32], pa.int64())),
        (
            pa.array([Decimal(0), Decimal(2**64 - 1)], pa.decimal128(20, 0)),
            pa.uint64(),
            pa.array([Decimal(0), Decimal(2**64)], pa.decimal128(20, 0)),
        ),
        (pa.array([b"abcd", None]), pa.binary(4), pa.array([b"abcd", b"abc"])),
        (pa.array([[b"abcd"], None], pa.list_(pa.large_binary())), pa.list_(pa.binary(4)), pa.array([[], [b"abc"]])),
    ],
)
def test_what_spark_has_for_a_type_is_taken_if_each_value_fits(
    found: pa.Array, wanted: pa.DataType, bad: pa.Array
) -> None:
    """Tables with such columns could not be ingested by Spark at all."""
    schema = pa.schema([("id", pa.int64()), ("value", wanted)])
    ids = pa.array([1, 2])
    taken = conform(pa.table({"id": ids, "value": found}), schema, ["id"]).column("value")
    assert taken.to_pylist() == found.to_pylist()
    with pytest.raises(InvalidRequestError, match="without loss") as caught:
        conform(pa.table({"id": ids, "value": bad}), schema, ["id"])
    assert (caught.value.facts["bad_rows"], caught.value.facts["first_row"]) == (1, 1)


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"id": ["1", "2"]}, "id"),
        ({"id": [1.0, 2.0]}, "id"),
        ({"name": [1, 2]}, "name"),
        ({"vec": [[1.0], [2.0, 3.0]]}, "vec"),
    ],
)
def test_a_wrong_type_refuses_the_whole_batch(columns: dict[str, object], fact: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        conform(_batch(**columns), SCHEMA, ["id"])
    assert caught.value.facts["column"] == fact


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize("rows", [{"id": [1]}, [{"id": 1}], None])
def test_what_is_no_arrow_table_is_refused_with_the_way_to_make_one(rows: Any) -> None:
    with pytest.raises(InvalidRequestError, match="neither a table nor a record batch") as caught:
        conform(rows, pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])

    assert (caught.value.facts["found"], "pyarrow.table(rows)" in str(caught.value)) == (type(rows).__name__, True)


def test_missing_and_unknown_columns_are_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        conform(_batch(extra=[1, 2]).drop_columns(["name"]), SCHEMA, ["id"])
    assert caught.value.facts["missing"] == ["name"]
    assert caught.value.facts["unknown"] == ["extra"]


@pytest.mark.req("WRT-27")
def test_a_null_key_is_refused_with_its_first_row() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        conform(_batch(id=pa.array([1, None], pa.int64())), SCHEMA, ["id"])
    assert caught.value.facts["first_row"] == 1
