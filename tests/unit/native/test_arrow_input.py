"""Rows come as whatever can hand over Arrow data, and are read once."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.native.arrow_input import as_table

ROWS = pa.table({"id": [1, 2], "s": ["a", None]})


class _Stream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


class _Array:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return ROWS.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    "rows", [ROWS, ROWS.to_batches()[0], ROWS.to_reader(), _Stream(), _Array(), ROWS.to_struct_array()], ids=type
)
def test_whatever_hands_over_arrow_data_is_a_table(rows: Any) -> None:
    assert as_table(rows).equals(ROWS)


def test_data_frame_is_a_table() -> None:
    assert as_table(pd.DataFrame({"id": [1]})).to_pydict() == {"id": [1]}


@pytest.mark.parametrize("rows", [None, 5, "a", [1], {"id": [1]}, _Stream, pa.array([1]), pa.int8()], ids=type)
def test_what_hands_over_no_table_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"next: .*pyarrow\.table\(rows\)"):
        as_table(rows)
