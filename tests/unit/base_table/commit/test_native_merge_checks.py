"""What is checked before rows go to pylance's merge."""

from __future__ import annotations

import pyarrow as pa
import pytest

from memwal_core.base_table.commit.native_merge import check_unique_keys
from memwal_core.errors import InvalidRequestError


def test_repeated_key_is_refused() -> None:
    """Bug class 7: Lance refuses repeated keys that match, and inserts both rows of a new key."""
    with pytest.raises(InvalidRequestError, match="more than once") as caught:
        check_unique_keys(pa.table({"a": [1, 1, 1], "b": ["x", "y", "x"]}), ["a", "b"])

    assert (caught.value.facts["rows"], caught.value.facts["distinct_keys"]) == (3, 2)


def test_distinct_composite_keys_are_accepted() -> None:
    check_unique_keys(pa.table({"a": [1, 1], "b": ["x", "y"]}), ["a", "b"])
    check_unique_keys(pa.table({"a": pa.array([], pa.int64())}), ["a"])


def test_missing_key_column_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="lack primary key"):
        check_unique_keys(pa.table({"a": [1]}), ["a", "b"])
