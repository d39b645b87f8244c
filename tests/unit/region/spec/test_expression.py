import mmh3
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec.expression import evaluate_expression
from memwal_core.region.spec.murmur3 import murmur3_multi

NUMBERS = pa.array([5, 123, None])
TEXTS = pa.array(["A", "b", None])


def evaluate(expression: str, *columns: pa.Array) -> list:
    return evaluate_expression(expression, columns, len(columns[0])).to_pylist()


@pytest.mark.req("SPEC-09", "SPEC-10")
@pytest.mark.parametrize(
    "expression",
    [
        "now()",
        "col0 + NOW ( )",
        '"now"()',
        "current_date",
        "CURRENT_TIMESTAMP",
        "current_time()",
        "today()",
        "random()",
        "uuid()",
        "concat(uuid(), 'x')",
        "version()",
        "input_file_name()",
        "arrow_typeof(col0)",
    ],
)
def test_expression_that_depends_on_more_than_its_row_is_refused(expression):
    with pytest.raises(InvalidRequestError, match="deterministic"):
        evaluate(expression, NUMBERS)


@pytest.mark.req("SPEC-30")
@pytest.mark.parametrize(
    "expression",
    ["sum(col0)", "approx_distinct(col0)", "unnest([1, 2])", "row_number() over ()", "(select max(col0) from source)"],
)
def test_expression_over_other_rows_is_refused(expression):
    with pytest.raises(InvalidRequestError):
        evaluate(expression, NUMBERS)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "  ",
        "col0) from source; drop table source",
        "col0; drop table source",
        "col0 -- comment",
        "col0 /* comment */",
        "col0 as x",
        "(col0",
        "col0)",
        ") + (",
        "'open",
        "e'\\''",
        "$1",
        "__rows",
        "col9",
        "no_such_function(col0)",
        "murmur3()",
        "murmur3(col0, col0)",
        "murmur3(1.5)",
        "1 / 0",
    ],
)
def test_text_that_is_no_single_expression_is_refused(expression):
    with pytest.raises(InvalidRequestError):
        evaluate(expression, NUMBERS)


def test_refused_words_inside_text_literals_are_accepted():
    assert evaluate("concat(col0, ' now(); -- it''s random()')", TEXTS)[0] == "A now(); -- it's random()"


@pytest.mark.req("SPEC-08", "SPEC-25")
def test_murmur3_takes_columns_of_any_type_and_nests():
    assert evaluate("murmur3(col0)", NUMBERS) == murmur3_multi([NUMBERS]).to_pylist()
    assert evaluate("MURMUR3(lower(col0))", TEXTS) == [mmh3.hash(b"a"), mmh3.hash(b"b"), None]
    twice = evaluate("murmur3(murmur3(col0) + murmur3(col1))", NUMBERS, TEXTS)
    sums = [
        a + b
        for a, b in zip(murmur3_multi([NUMBERS]).to_pylist()[:2], murmur3_multi([TEXTS]).to_pylist()[:2], strict=True)
    ]
    assert twice == [*murmur3_multi([pa.array(sums)]).to_pylist(), None]


@pytest.mark.req("SPEC-08", "SPEC-26")
def test_murmur3_multi_takes_any_number_of_columns():
    assert evaluate("murmur3_multi(col0, col1)", NUMBERS, TEXTS) == murmur3_multi([NUMBERS, TEXTS]).to_pylist()
    with_literal = evaluate("murmur3_multi(col0, 'a,b)', [1, 2][1])", NUMBERS)
    assert with_literal[0] == mmh3.hash((5).to_bytes(8, "little") + b"a,b)" + (1).to_bytes(8, "little"))


@pytest.mark.req("SPEC-27", "D-30")
def test_abs_of_the_hash_is_defined_for_the_smallest_hash():
    assert evaluate("abs(arrow_cast(col0, 'Int64')) % 10", pa.array([-(2**31)], pa.int32())) == [8]
    assert evaluate_expression("murmur3(col0)", [NUMBERS], 3).type == pa.int64()


@pytest.mark.req("SPEC-09", "SPEC-29")
def test_many_rows_keep_their_order_and_repeat_exactly():
    numbers = pa.array(np.random.default_rng(4).integers(-(2**40), 2**40, 100_000))
    first = evaluate_expression("col0 % 1000 + murmur3(col0)", [numbers], len(numbers))
    expected = np.fmod(numbers.to_numpy(), 1000) + murmur3_multi([numbers]).to_numpy()
    assert np.array_equal(first.to_numpy(), expected)
    assert first.equals(evaluate_expression("col0 % 1000 + murmur3(col0)", [numbers], len(numbers)))


@pytest.mark.req("SPEC-08")
def test_constant_expression_fills_every_row():
    assert evaluate_expression("7", [], 3).to_pylist() == [7, 7, 7]
    assert evaluate_expression("col0 + 1", [pa.array([], pa.int32())], 0).type == pa.int64()


@pytest.mark.req("SPEC-13")
def test_expression_decides_what_null_means():
    assert evaluate("col0 + 1", NUMBERS) == [6, 124, None]
    assert evaluate("coalesce(col0, -1)", NUMBERS) == [5, 123, -1]
