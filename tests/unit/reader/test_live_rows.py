"""Sets of row ids hold exactly the ids that were put in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.reader.bm25 import CorpusStatistics, largest_gain
from memwal_core.reader.live_rows import LiveRows

ids = st.tuples(st.integers(0, 3), st.integers(0, 40)).map(lambda each: (each[0] << 32) | each[1])


@settings(derandomize=True, deadline=None)
@given(batches=st.lists(st.lists(ids, max_size=30), max_size=4), asked=st.lists(ids, max_size=50))
def test_set_of_row_ids_contains_what_was_put_in(batches: list[list[int]], asked: list[int]) -> None:
    rows = LiveRows(np.array(batch, dtype=np.uint64) for batch in batches)
    expected = {each for batch in batches for each in batch}

    assert rows.contains(np.array(asked, dtype=np.uint64)).tolist() == [each in expected for each in asked]


@pytest.mark.req("RD-55")
@settings(derandomize=True, deadline=None)
@given(
    rare=st.integers(1, 20),
    common=st.integers(1, 50),
    extra=st.integers(0, 1000),
    length=st.integers(1, 30),
    counts=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_no_document_gains_more_than_the_bound(
    rare: int, common: int, extra: int, length: int, counts: tuple[int, int]
) -> None:
    local = CorpusStatistics(60, 600, {"a": rare, "b": common})
    total = CorpusStatistics(60 + extra, 600 + 17 * extra, {"a": rare + extra // 2, "b": common})
    document = ["a"] * counts[0] + ["b"] * counts[1] + ["c"] * length

    assert total.score(document) <= local.score(document) * largest_gain(local, total) * (1 + 1e-9)
