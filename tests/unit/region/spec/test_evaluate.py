import datetime

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec import RegionField, RegionSpec, evaluate_field, evaluate_spec
from memwal_core.region.spec.parameters import MURMUR3_X86_32
from memwal_core.region.spec.transforms import find_transform

MOMENT = datetime.datetime(2026, 1, 15, 10, tzinfo=datetime.UTC)
BUCKETS = {"num_buckets": "10", "hash": MURMUR3_X86_32}
INTEGERS = [getattr(pa, name)() for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]


def field(transform: str | None = None, result_type: str = "int32", sources: tuple[int, ...] = (0,), **more):
    return RegionField("f", sources, transform, result_type=result_type, **more)


def evaluate(wanted: RegionField, *columns: pa.Array) -> list:
    found = evaluate_field(wanted, dict(enumerate(columns)), len(columns[0]))
    return found.to_pylist()


SINGLE_SOURCE_FIELDS = [
    field("identity", "int64"),
    field("year"),
    field("month"),
    field("day"),
    field("hour"),
    field("bucket", parameters=BUCKETS),
    field("multi_bucket", parameters=BUCKETS),
    field("truncate", "int64", parameters={"width": "10"}),
    field("truncate", "utf8", parameters={"width": "10"}),
]


@pytest.mark.req("SPEC-15", "SPEC-16", "SPEC-17", "SPEC-18", "SPEC-19", "SPEC-20", "SPEC-21", "SPEC-22", "SPEC-23")
@pytest.mark.req("SPEC-24")
@pytest.mark.parametrize(
    ("wanted", "expression"),
    [
        (field("identity"), "col0"),
        (field("year"), "date_part('year', col0)"),
        (field("month"), "date_part('month', col0)"),
        (field("day"), "date_part('day', col0)"),
        (field("hour"), "date_part('hour', col0)"),
        (field("bucket", parameters=BUCKETS), "abs(murmur3(col0)) % 10"),
        (
            field("multi_bucket", sources=(4, 2, 9), parameters=BUCKETS),
            "abs(murmur3_multi(col0, col1, col2)) % 10",
        ),
        (field("truncate", "utf8", parameters={"width": "3"}), "left(col0, 3)"),
        (field("truncate", "int64", parameters={"width": "3"}), "col0 - (col0 % 3)"),
    ],
)
def test_transform_derives_the_expression_of_the_specification(wanted, expression):
    assert find_transform(wanted).derive(wanted) == expression


@pytest.mark.req("SPEC-12", "SPEC-13")
@pytest.mark.parametrize("wanted", SINGLE_SOURCE_FIELDS, ids=lambda each: f"{each.transform}-{each.result_type}")
def test_dropped_source_column_gives_null(wanted):
    found = evaluate_field(wanted, {}, 2)
    assert found.to_pylist() == [None, None]
    assert found.type == {"int32": pa.int32(), "int64": pa.int64(), "utf8": pa.string()}[wanted.result_type]


@pytest.mark.req("SPEC-12")
@pytest.mark.parametrize(
    "expression", ["col0 + 1", "date_part('year', col0)", "octet_length(col0)", "abs(murmur3(col0)) % 4"]
)
def test_dropped_column_of_an_expression_is_null_whatever_type_it_needs(expression):
    assert evaluate_field(field(expression=expression), {}, 2).to_pylist() == [None, None]


@pytest.mark.req("SPEC-12", "SPEC-26")
def test_dropped_column_of_a_composite_bucket_is_skipped():
    composite = field("multi_bucket", sources=(0, 1), parameters=BUCKETS)
    alone = field("bucket", parameters=BUCKETS)
    column = pa.array([5, 123])
    assert evaluate_field(composite, {0: column}, 2).equals(evaluate_field(alone, {0: column}, 2))


@pytest.mark.req("SPEC-12", "SPEC-21")
def test_dropped_column_of_a_pylance_bucket_lies_in_its_null_bucket():
    assert evaluate_field(field("bucket", parameters={"num_buckets": "10"}), {}, 2).to_pylist() == [0, 0]


@pytest.mark.req("SPEC-11")
@pytest.mark.parametrize(
    "wanted",
    [
        field("identity", "int64"),
        field("bucket", parameters=BUCKETS),
        field("truncate", "int64", parameters={"width": "2"}),
        field(expression="col0 * 3 + 100", result_type="int64"),
        field(expression="abs(murmur3(col0)) % 10"),
        field(expression="abs(murmur3_multi(col0 / 2, col0)) % 10"),
    ],
    ids=lambda each: each.transform or each.expression,
)
def test_equal_integers_of_all_types_give_equal_values(wanted):
    values = [0, 5, 123, None]
    expected = evaluate(wanted, pa.array(values, pa.int64()))
    for kind in INTEGERS:
        assert evaluate(wanted, pa.array(values, kind)) == expected, kind


@pytest.mark.req("SPEC-11")
@pytest.mark.parametrize(
    "column",
    [
        pa.array(["héllo", None, ""], pa.large_string()),
        pa.array(["héllo", None, ""], pa.string_view()),
        pa.array(["héllo", None, ""]).dictionary_encode(),
        pa.chunked_array([pa.array(["héllo"]), pa.array([None, ""], pa.string())]),
        pa.chunked_array([pa.array(["héllo"]).dictionary_encode(), pa.array([None, ""]).dictionary_encode()]),
    ],
    ids=lambda column: f"{type(column).__name__}-{column.type}",
)
@pytest.mark.parametrize(
    "wanted",
    [
        field("identity", "utf8"),
        field("bucket", parameters=BUCKETS),
        field("bucket", parameters={"num_buckets": "10"}),
        field("truncate", "utf8", parameters={"width": "2"}),
        field(expression="abs(murmur3(lower(col0))) % 10"),
    ],
    ids=lambda each: each.transform or each.expression,
)
def test_encoding_of_a_text_column_does_not_change_its_values(wanted, column):
    assert evaluate(wanted, column) == evaluate(wanted, pa.array(["héllo", None, ""]))


@pytest.mark.req("SPEC-17", "SPEC-18", "SPEC-19", "SPEC-20")
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(("part", "expected"), [("year", 2026), ("month", 1), ("day", 15), ("hour", 10)])
def test_date_parts_do_not_depend_on_the_unit(part, expected, unit):
    assert evaluate(field(part), pa.array([MOMENT, None], pa.timestamp(unit, "UTC"))) == [expected, None]


@pytest.mark.req("SPEC-15", "SPEC-20")
@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us"), pa.date32(), pa.date64()], ids=str
)
@pytest.mark.parametrize("part", ["year", "month", "day", "hour"])
def test_date_parts_equal_their_expression_on_every_type(part, kind):
    column = pa.array([MOMENT, None], pa.timestamp("us", "UTC")).cast(kind, safe=False)
    expression = find_transform(field(part)).derive(field(part))
    assert evaluate(field(part), column) == evaluate(field(expression=expression), column)


@pytest.mark.req("SPEC-23")
def test_truncate_counts_characters_and_keeps_short_texts():
    wanted = field("truncate", "utf8", parameters={"width": "2"})
    assert evaluate(wanted, pa.array(["héllo", "🎉🎉🎉", "h", "", None])) == ["hé", "🎉🎉", "h", "", None]


@pytest.mark.req("SPEC-24")
def test_truncate_of_negative_numbers_goes_towards_zero():
    wanted = field("truncate", "int64", parameters={"width": "10"})
    assert evaluate(wanted, pa.array([123, -7, -123, None])) == [120, 0, -120, None]


@pytest.mark.req("SPEC-05", "SPEC-08")
def test_source_order_decides_the_column_names():
    columns = {7: pa.array([10]), 3: pa.array([1])}
    assert evaluate_field(field(sources=(7, 3), expression="col0 - col1"), columns, 1).to_pylist() == [9]
    assert evaluate_field(field(sources=(3, 7), expression="col0 - col1"), columns, 1).to_pylist() == [-9]


@pytest.mark.req("SPEC-07", "SPEC-14")
def test_expression_value_beyond_its_result_type_is_refused():
    with pytest.raises(InvalidRequestError) as refusal:
        evaluate(field(expression="col0 + 1"), pa.array([2**31 - 1]))
    assert refusal.value.facts["result_type"] == "int32"


def test_date_that_is_no_whole_day_is_refused():
    """Moments of one day gave groups of rows with one region value, of which a put kept the last."""
    days = field(expression="arrow_cast(col0, 'Date64')", result_type="date64")
    assert evaluate(days, pa.array([86_400_000, None])) == [datetime.date(1970, 1, 2), None]
    with pytest.raises(InvalidRequestError) as refusal:
        evaluate(days, pa.array([86_400_001, 86_400_002]))
    assert refusal.value.facts["result_type"] == "date64"


@pytest.mark.req("SPEC-11", "SPEC-14")
@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
@pytest.mark.parametrize("day", [-719_163, 2_932_897, 2**31 - 1, -(2**31)])
def test_date_that_is_no_region_value_is_refused_with_its_value(kind, day):
    """A put ended in an OverflowError of Python."""
    days = pa.array([0, None, day], pa.int32()).cast(pa.date32()).cast(kind)
    wanted = field("identity", str(kind)[:6])
    with pytest.raises(InvalidRequestError, match="years 1 to 9999") as refused:
        evaluate(wanted, days)
    assert refused.value.facts["days_since_1970"] == day
    last = datetime.date.min if day < 0 else datetime.date.max
    if abs(day) < 2**30:
        inside = pa.array([day + (1 if day < 0 else -1)], pa.int32()).cast(pa.date32()).cast(kind)
        assert evaluate(wanted, inside) == [last]


@pytest.mark.parametrize("part", ["year", "month", "day"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us", "Asia/Tokyo")])
def test_year_of_more_than_16_bits_is_refused_and_not_wrapped(part, kind):
    """Arrow made -30712 of the year 34824, where Lance's expression keeps it: rows would lie in another region."""

    def moments(*days):
        seconds = pa.array(days, pa.int64()).cast(pa.int32()).cast(pa.date32()).cast(pa.timestamp("s"))
        return seconds.cast(kind) if pa.types.is_timestamp(kind) else seconds.cast(pa.date32()).cast(kind)

    edges = moments(-12_687_063, 0, 11_248_372)
    assert evaluate(field(part), edges) == evaluate(field(None, expression=f"date_part('{part}', col0)"), edges)
    for day in (-12_687_064, 11_248_373, 12_000_000):
        with pytest.raises(InvalidRequestError, match="does not fit 16 bits"):
            evaluate(field(part), moments(0, day))


def test_arithmetic_on_large_unsigned_values_keeps_them_exact():
    assert evaluate(
        field(expression="col0 - 1", result_type="uint64"), pa.array([2**64 - 1, 5, None], pa.uint64())
    ) == [
        2**64 - 2,
        4,
        None,
    ]


@pytest.mark.req("SPEC-14")
def test_expression_of_another_kind_than_its_result_type_is_refused():
    with pytest.raises(InvalidRequestError, match="do not have its result type"):
        evaluate(field(expression="left(col0, 1)"), pa.array(["a"]))


@pytest.mark.req("SPEC-06")
@pytest.mark.parametrize("wanted", [field(), field("identity", expression="col0")])
def test_field_with_both_or_neither_of_transform_and_expression_is_refused(wanted):
    with pytest.raises(InvalidRequestError, match="either a transform or an expression"):
        evaluate(wanted, pa.array([1]))


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize(
    ("wanted", "column"),
    [
        (field("year"), pa.array([2026])),
        (field("day"), pa.array([0], pa.time64("us"))),
        (field("truncate", "binary", parameters={"width": "1"}), pa.array([b"ab"])),
        (field("bucket", parameters=BUCKETS), pa.array([1.5])),
        (field("bucket", parameters={"num_buckets": "10"}), pa.array([b"ab"])),
    ],
)
def test_source_type_that_a_transform_does_not_take_is_refused(wanted, column):
    with pytest.raises(InvalidRequestError):
        evaluate(wanted, column)


def test_columns_of_another_length_are_refused():
    with pytest.raises(InvalidRequestError) as refusal:
        evaluate_field(field("identity"), {0: pa.array([1, 2])}, 3)
    assert refusal.value.facts["expected"] == 3


@pytest.mark.req("SPEC-02")
def test_spec_gives_one_array_per_field_in_order():
    spec = RegionSpec(1, (field("truncate", "int64", parameters={"width": "10"}), field("bucket", parameters=BUCKETS)))
    assert [each.to_pylist() for each in evaluate_spec(spec, {0: pa.array([123])}, 1)] == [[120], [4]]
    assert evaluate_spec(RegionSpec(1, ()), {}, 1) == ()


def test_unsharded_of_pylance_puts_every_row_into_one_region():
    assert evaluate_field(field("unsharded", sources=()), {}, 3).to_pylist() == [0, 0, 0]


def test_pylance_bucket_has_no_expression():
    bucket = field("bucket", parameters={"num_buckets": "10"})
    with pytest.raises(InvalidRequestError):
        find_transform(bucket).derive(bucket)


@pytest.mark.req("SPEC-11")
def test_equal_floats_of_both_widths_give_equal_values():
    wanted = field(expression="col0 * col0 < 1e70", result_type="boolean")
    assert evaluate(wanted, pa.array([2.0**100, 2.0**127, None], pa.float32())) == [True, False, None]
