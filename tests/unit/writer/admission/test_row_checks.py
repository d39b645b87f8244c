"""Which rows do not fit, and what the error shows of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.writer.admission.row_checks import rows_that_do_not_cast, sample_rows
from memwal_core.writer.admission.validate import conform

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("count", pa.uint32()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
        pa.field("at", pa.timestamp("ms", "UTC")),
    ]
)


def _batch(rows: int, **columns: object) -> pa.Table:
    plain: dict[str, object] = {
        "id": list(range(rows)),
        "count": pa.array([1] * rows, pa.int32()),
        "vec": pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32())),
        "at": pa.array([1000] * rows, pa.timestamp("us", "Europe/Berlin")),
    }
    return pa.table({**plain, **columns})


@pytest.mark.parametrize("bad", [[], [0], [99], [3, 4, 50], list(range(100))])
def test_exactly_the_rows_that_do_not_cast_are_found(bad: list[int]) -> None:
    values = pa.chunked_array([pa.array([-1 if number in bad else 7 for number in range(100)], pa.int32())])

    assert rows_that_do_not_cast(values, pa.uint8()) == bad


def test_the_search_for_rows_that_do_not_cast_ends_with_the_thousandth() -> None:
    values = pa.chunked_array([pa.array([-1] * 1500, pa.int32())])

    assert rows_that_do_not_cast(values, pa.uint8()) == list(range(1000))


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("count", pa.array([1, 2, -3, 4], pa.int32())),
        ("vec", pa.array([[1, 2], [3, 4], [5], [6, 7]], pa.list_(pa.float32()))),
        ("at", pa.array([1000, 2000, 3001, 4000], pa.timestamp("us", "UTC"))),
    ],
)
def test_error_shows_the_rows_that_would_lose_something(column: str, values: pa.Array) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        conform(_batch(4, **{column: values}), SCHEMA, ["id"])

    facts = caught.value.facts
    assert (facts["column"], facts["bad_rows"], facts["first_row"]) == (column, 1, 2)
    assert [row["id"] for row in facts["sample_rows"]] == ["2"]


def test_rows_that_fit_only_one_by_one_all_count() -> None:
    rows = pa.table({"id": list(range(300)), "text": [f"text {number}" for number in range(300)]})
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.dictionary(pa.int8(), pa.string()))])

    with pytest.raises(InvalidRequestError, match="without loss") as caught:
        conform(rows, schema, ["id"])

    assert (caught.value.facts["bad_rows"], caught.value.facts["first_row"]) == (300, None)


@pytest.mark.req("WRT-27")
def test_error_shows_rows_without_a_key() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        conform(_batch(9, id=[None, 1, None, 3, None, None, None, None, 8]), SCHEMA, ["id"])

    assert caught.value.facts["null_rows"] == 6
    assert len(caught.value.facts["sample_rows"]) == 5
    assert caught.value.facts["sample_rows"][0]["id"] == "NULL"


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    "text",
    [
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"], pa.string_view()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays([1, 2], pa.array(["a", "b"])),
        pa.array([["a"], ["b"]], pa.list_(pa.string_view())),
        pa.array([{"x": "a"}, {"x": "b"}], pa.struct([("x", pa.string_view())])),
    ],
    ids=lambda each: str(each.type)[:30],
)
def test_rows_are_shown_whatever_the_other_columns_are(text: pa.Array) -> None:
    """Polars hands over views, of which pyarrow takes no rows."""
    rows = pa.table({"id": pa.array([1, None]), "text": text})
    kind = pa.list_(pa.string()) if pa.types.is_list(text.type) else pa.string()
    kind = pa.struct([("x", pa.string())]) if pa.types.is_struct(text.type) else kind

    with pytest.raises(InvalidRequestError, match="key value is NULL") as caught:
        conform(rows, pa.schema([pa.field("id", pa.int64()), pa.field("text", kind)]), ["id"])

    assert [row["id"] for row in caught.value.facts["sample_rows"]] == ["NULL"]


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    ("other", "text"),
    [
        (pa.array([0, 10**12], pa.timestamp("s")), "[<value out of range: 1000000000000>]"),
        (pa.array([0, 10**7], pa.date32()), "[29349-01-26]"),
        (pa.array([0, 2**62], pa.duration("s")), "[4611686018427387904]"),
        (pa.array([0, 1], pa.timestamp("s", "Nowhere/At_all")), "[1970-01-01 00:00:01Z]"),
        (pa.array([[0], [10**7]], pa.list_(pa.date32())), "[[29349-01-26]]"),
    ],
    ids=lambda each: str(each.type) if isinstance(each, pa.Array) else "",
)
def test_rows_are_shown_where_python_has_no_such_value(other: pa.Array, text: str) -> None:
    rows = pa.table({"id": pa.array([1, None]), "other": other})

    with pytest.raises(InvalidRequestError, match="key value is NULL") as caught:
        conform(rows, pa.schema([pa.field("id", pa.int64()), pa.field("other", other.type)]), ["id"])

    assert caught.value.facts["sample_rows"] == [{"id": "NULL", "other": text}]


@pytest.mark.req("WRT-27")
def test_instants_under_another_zone_and_unit_are_taken() -> None:
    taken = conform(_batch(3), SCHEMA, ["id"])

    assert taken.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert taken.column("at").cast(pa.int64()).to_pylist() == [1, 1, 1]


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("s"), pa.timestamp("ns"), True),
        (pa.time64("ns"), pa.time32("s"), True),
        (pa.time32("ms"), pa.time64("us"), True),
        (pa.date32(), pa.date64(), True),
        (pa.date64(), pa.timestamp("ms"), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), True),
        (pa.decimal128(9, 3), pa.decimal128(9, 2), False),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), False),
    ],
)
def test_only_lossless_forms_are_taken(found: pa.DataType, wanted: pa.DataType, fits: bool) -> None:
    rows, schema = pa.table({"x": pa.array([None], found)}), pa.schema([pa.field("x", wanted)])

    if fits:
        assert conform(rows, schema, []).schema.field("x").type == wanted
        return
    with pytest.raises(InvalidRequestError, match="wrong type"):
        conform(rows, schema, [])


def test_sample_is_short_and_begins_with_the_key() -> None:
    wide = pa.table({**{f"c{number}": [number] for number in range(30)}, "text": ["x" * 500], "key": [1]})

    (row,) = sample_rows(wide, [0], ["key", "text"])

    assert list(row)[:2] == ["key", "text"]
    assert len(row) == 12
    assert len(row["text"]) < 70


def test_keys_with_other_columns_are_refused_as_keys() -> None:
    with pytest.raises(InvalidRequestError, match="columns of the key") as refused:
        conform(pa.table({"idd": [1]}), pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])

    assert "NULL" not in refused.value.remedy
