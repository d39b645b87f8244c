"""Answers about types are remembered, also where Python cannot hash a type."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance.arrow import BFloat16Type

from memwal_core.native.type_cache import type_cache


def _asked_twice(value: object) -> int:
    asked = []

    @type_cache(4)
    def answer(value: object) -> str:
        asked.append(value)
        return str(value)

    assert answer(value) == answer(value) == str(value)
    return len(asked)


def test_type_with_a_hash_is_asked_once() -> None:
    assert _asked_twice(pa.uuid()) == 1


@pytest.mark.parametrize("value", [BFloat16Type(), pa.schema([pa.field("v", BFloat16Type())])])
def test_type_without_a_hash_is_asked_each_time(value: object) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
    assert _asked_twice(value) == 2


def test_type_error_of_the_function_itself_is_raised_once_and_not_hidden() -> None:
    asked = []

    @type_cache(4)
    def answer(kind: pa.DataType) -> str:
        asked.append(kind)
        raise TypeError("its own")

    with pytest.raises(TypeError, match="its own"):
        answer(pa.int8())
    assert len(asked) == 1
