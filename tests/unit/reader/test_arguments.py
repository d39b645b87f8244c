"""What is no count and no vector is refused in words of ours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.reader.arguments import query_vector, require_count, require_words


@pytest.mark.parametrize("value", [True, None, -1, 1.0, math.nan, "3", 1 << 63, np.float64(2)])
def test_what_is_no_count_is_refused_by_its_name_and_value(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="`limit`") as refused:
        require_count("limit", value)
    assert refused.value.facts["limit"] is value


@pytest.mark.parametrize("value", [0, 7, (1 << 63) - 1, np.int64(3), np.uint8(3)])
def test_whole_numbers_are_counts(value: Any) -> None:
    require_count("limit", value)


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
