"""Which of several rows of a key is provably the newest."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from memwal_core.jobs.repair.duplicates import decide

# keys, first and last version of each row, and what is expected: o older, n newest, ? undecided
CASES = {
    "one row": (["a"], [3], [3], "n"),
    "two versions": (["a", "a"], [1, 2], [1, 2], "on"),
    "the same version": (["a", "a"], [2, 2], [2, 2], "??"),
    "newest twice": (["a", "a", "a"], [1, 2, 2], [1, 2, 2], "???"),
    "an old span": (["a", "a"], [0, 5], [4, 5], "on"),
    "overlapping spans": (["a", "a"], [0, 3], [4, 5], "??"),
    "touching spans": (["a", "a"], [1, 3], [3, 5], "??"),
    "unknown but all before": (["a", "a"], [0, 0], [4, 4], "??"),
    "keys apart": (["a", "b", "a", "b"], [1, 2, 2, 2], [1, 2, 2, 2], "o?n?"),
    "composite": (["a", "a"], [2, 1], [2, 1], "no"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_newest_row_is_kept_only_if_it_was_certainly_written_last(case: tuple[list[str], list[int], list[int], str]):
    names, first, last, expected = case
    keys = pa.table({"k": names, "l": [1] * len(names)})
    older, undecided = decide(keys, ["k", "l"], np.array(first), np.array(last))
    shown = ["?" if doubt else "o" if old else "n" for old, doubt in zip(older, undecided, strict=True)]
    assert "".join(shown) == expected


def test_no_rows_need_no_decision() -> None:
    older, undecided = decide(pa.table({"k": pa.array([], pa.int64())}), ["k"], np.array([], int), np.array([], int))
    assert (len(older), len(undecided)) == (0, 0)
