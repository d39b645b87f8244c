import math

import pyarrow as pa
import pytest

from demo.comparison import compare
from demo.flights.expectation import expected_flights
from demo.flights.source import KEY_COLUMNS, flights_of_first_days
from memwal_core.errors import InvalidRequestError

EXPECTED = pa.table({"a": [1, 1, 2, 3], "b": ["x", "y", "x", "x"], "v": [10, None, 30, 40], "w": ["p", "q", None, "s"]})
KEY = ("a", "b")


def replaced(table, column, values):
    return table.set_column(table.column_names.index(column), column, pa.array(values, table[column].type))


def test_same_rows_in_another_order_are_identical():
    difference = compare(EXPECTED, EXPECTED.take([2, 0, 3, 1]), KEY)

    assert difference.identical
    assert str(difference) == "identical: 4 rows, every key once, every value as expected"


def test_missing_row_is_found():
    difference = compare(EXPECTED, EXPECTED.take([0, 2, 3]), KEY)

    assert not difference.identical
    assert difference.missing.to_pylist() == [{"a": 1, "b": "y"}]
    assert (difference.extra.num_rows, difference.duplicates.num_rows, difference.changed_rows) == (0, 0, 0)
    assert "missing keys: 1\n    a=1 b=y" in str(difference)


def test_extra_row_is_found_once_even_if_repeated():
    stranger = pa.table({"a": [9, 9], "b": ["z", "z"], "v": [1, 1], "w": ["t", "t"]})
    difference = compare(EXPECTED, pa.concat_tables([EXPECTED, stranger]), KEY)

    assert not difference.identical
    assert difference.extra.to_pylist() == [{"a": 9, "b": "z"}]
    assert difference.duplicates.to_pylist() == [{"a": 9, "b": "z", "copies": 2}]
    assert (difference.missing.num_rows, difference.changed_rows) == (0, 0)


def test_duplicate_of_an_expected_row_is_found_although_its_values_are_right():
    difference = compare(EXPECTED, EXPECTED.take([0, 1, 2, 3, 2, 2]), KEY)

    assert not difference.identical
    assert difference.duplicates.to_pylist() == [{"a": 2, "b": "x", "copies": 3}]
    assert (difference.missing.num_rows, difference.extra.num_rows, difference.changed_rows) == (0, 0, 0)
    assert "duplicate keys: 1\n    a=2 b=x copies=3" in str(difference)


def test_duplicate_that_hides_a_missing_row_is_found_although_counts_agree():
    difference = compare(EXPECTED, EXPECTED.take([0, 0, 2, 3]), KEY)

    assert difference.expected_rows == difference.actual_rows
    assert difference.missing.num_rows == difference.duplicates.num_rows == 1


@pytest.mark.parametrize(
    ("column", "values", "expected", "actual"),
    [
        ("v", [10, None, 30, 41], 40, 41),
        ("v", [10, None, 30, None], 40, None),
        ("v", [10, 20, 30, 40], None, 20),
        ("v", [10, 0, 30, 40], None, 0),
        ("w", ["p", "q", "", "s"], None, ""),
        ("w", ["p", None, None, "s"], "q", None),
    ],
)
def test_changed_value_is_found_with_both_sides(column, values, expected, actual):
    difference = compare(EXPECTED, replaced(EXPECTED, column, values), KEY)

    assert not difference.identical
    assert difference.changed_rows == 1
    (change,) = difference.changes
    assert (change.column, change.rows) == (column, 1)
    (row,) = change.sample.to_pylist()
    assert (row["expected"], row["actual"]) == (expected, actual)
    shown = "expected={} actual={}".format(*("NULL" if value is None else value for value in (expected, actual)))
    assert shown in str(difference)


def test_row_with_two_changed_columns_counts_once():
    actual = replaced(replaced(EXPECTED, "v", [11, None, 30, 40]), "w", ["o", "q", None, "r"])
    difference = compare(EXPECTED, actual, KEY)

    assert difference.changed_rows == 2
    assert [(change.column, change.rows) for change in difference.changes] == [("v", 1), ("w", 2)]


def test_samples_are_short_and_counts_are_whole():
    expected = pa.table({"k": list(range(1_000)), "v": [0] * 1_000})
    difference = compare(expected, replaced(expected, "v", [1] * 1_000), ["k"])

    assert difference.changes[0].rows == 1_000
    assert difference.changes[0].sample["k"].to_pylist() == [0, 1, 2, 3, 4]
    assert len(str(difference).splitlines()) == 11


def test_nan_equals_nan_and_nothing_else():
    expected = pa.table({"k": [1, 2, 3], "v": [math.nan, math.nan, 1.0]})
    actual = pa.table({"k": [1, 2, 3], "v": pa.array([math.nan, 1.0, None])})
    difference = compare(expected, actual, ["k"])

    assert difference.changes[0].sample["k"].to_pylist() == [2, 3]


def test_other_types_with_the_same_values_are_identical():
    actual = EXPECTED.cast(
        pa.schema([("a", pa.int8()), ("b", pa.large_string()), ("v", pa.int32()), ("w", pa.string_view())])
    )

    assert compare(EXPECTED, actual.append_column("more", pa.array([1, 2, 3, 4])), KEY).identical


def test_value_that_does_not_fit_the_expected_type_is_an_error():
    small = EXPECTED.set_column(2, "v", EXPECTED["v"].cast(pa.int8()))

    with pytest.raises(pa.ArrowInvalid):
        compare(small, replaced(EXPECTED, "v", [10, None, 30, 4_000]), KEY)


def test_empty_table_misses_everything():
    difference = compare(EXPECTED, EXPECTED.slice(0, 0), KEY)

    assert difference.missing.num_rows == 4
    assert compare(EXPECTED.slice(0, 0), EXPECTED.slice(0, 0), KEY).identical


@pytest.mark.parametrize(
    ("expected", "actual", "key", "what"),
    [
        (EXPECTED, EXPECTED.drop_columns(["w"]), KEY, "lacks columns"),
        (EXPECTED, EXPECTED, ("a", "nope"), "not in the table"),
        (EXPECTED, EXPECTED, (), "not in the table"),
        (EXPECTED, replaced(EXPECTED, "b", ["x", None, "x", "x"]), KEY, "key is NULL"),
        (EXPECTED.take([0, 0]), EXPECTED, KEY, "repeats keys"),
    ],
)
def test_comparison_that_would_mean_nothing_is_refused(expected, actual, key, what):
    with pytest.raises(InvalidRequestError, match=what):
        compare(expected, actual, key)


def test_one_wrong_value_among_all_columns_of_a_day_is_found(all_flights):
    expected = expected_flights(flights_of_first_days(all_flights, 1))
    for name in set(expected.column_names) - set(KEY_COLUMNS):
        # Shift one column by a row: some flights then carry the value of their neighbour.
        values = expected[name].combine_chunks()
        shifted = pa.concat_arrays([values[1:], values[:1]])
        position = expected.column_names.index(name)
        difference = compare(expected, expected.set_column(position, expected.field(name), shifted), KEY_COLUMNS)

        assert [change.column for change in difference.changes] == [name]
