"""What is no count, no filter and no vector is refused in words of ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.reader.arguments import query_vector, require_count, require_filter, require_words


@pytest.mark.parametrize("value", [True, None, -1, 1.0, math.nan, "3", 1 << 63, np.float64(2)])
def test_what_is_no_count_is_refused_by_its_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="`limit`") as refused:
        require_count("limit", value)
    assert refused.value.facts["limit"] is value


@pytest.mark.parametrize("value", [0, 7, (1 << 63) - 1, np.int64(3), np.uint8(3)])
def test_whole_numbers_are_counts(value: Any) -> None:
    require_count("limit", value)


@pytest.mark.parametrize(
    ("filter_sql", "parameter"),
    [
        ("id = ?", "?"), ("id=?1", "?1"), ("id in (?, 2)", "?"), ("$1", "$1"), ("id=$1", "$1"), ("id = $name", "$name"),
        (":a", ":a"), ("id = :a", ":a"), ("s = 'it''s' and id = ?", "?"), ("id = 1 -- 'x\n and id = ?", "?"),
    ],
)  # fmt: skip
def test_filter_with_a_parameter_is_refused_and_the_parameter_named(filter_sql: str, parameter: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        require_filter(filter_sql)
    assert refused.value.facts["parameter"] == parameter


@pytest.mark.parametrize(
    "filter_sql",
    [
        "s = '?'", 's = "?"', "`a?` = 1", "s = ':a'", "s = '$1'", "id = 1 -- why?", "id = 1 /* $1 */", "id::bigint = 1",
        "a$1 = 2", "s = 'it''s :a'", "v[1:2] = 3", "s ~ 'a?'",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_parameter_passes(filter_sql: str) -> None:
    require_filter(filter_sql)


@pytest.mark.parametrize("filter_sql", [5, b"id = 1", ["id = 1"]])
def test_filter_that_is_no_text_is_refused(filter_sql: Any) -> None:
    with pytest.raises(InvalidRequestError):
        require_filter(filter_sql)


@pytest.mark.parametrize(
    "vector",
    [None, 5, "ab", [1.0, None], [math.nan, 1.0], [math.inf], [[1.0]], [True, False], [1j], ["a"], [[1], [1, 2]]],
)
def test_what_is_no_vector_of_finite_numbers_is_refused(vector: Any) -> None:
    with pytest.raises(InvalidRequestError):
        query_vector(vector)


@pytest.mark.parametrize("vector", [[1, 2], (1.0, 2.0), np.array([1, 2], np.float16), pa.array([1.0, 2.0])])
def test_lists_and_arrays_of_numbers_are_vectors(vector: Any) -> None:
    assert query_vector(vector).tolist() == [1, 2]


@pytest.mark.parametrize("query", [None, 5, b"word", "\ud800"])
def test_words_that_are_no_text_are_refused(query: Any) -> None:
    with pytest.raises(InvalidRequestError):
        require_words(query)
