"""Sets of row ids hold exactly the ids that were put in."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.reader.text.live_rows import LiveRows

ids = st.tuples(st.integers(0, 3), st.integers(0, 40)).map(lambda each: (each[0] << 32) | each[1])


@settings(derandomize=True, deadline=None)
@given(batches=st.lists(st.lists(ids, max_size=30), max_size=4), asked=st.lists(ids, max_size=50))
def test_set_of_row_ids_contains_what_was_put_in(batches: list[list[int]], asked: list[int]) -> None:
    rows = LiveRows(np.array(batch, dtype=np.uint64) for batch in batches)
    expected = {each for batch in batches for each in batch}

    assert rows.contains(np.array(asked, dtype=np.uint64)).tolist() == [each in expected for each in asked]
