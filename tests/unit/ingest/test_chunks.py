"""From the rows of a share to chunks in which every key occurs once."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwal_core.ingest.chunks import deduplicated, in_chunks

KEYS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30).map(sorted)


def _tables(keys: list[tuple[int, str]], cuts: list[int]) -> list[pa.Table]:
    rows = pa.table(
        {
            "number": pa.array([number for number, _ in keys], pa.int64()),
            "letter": pa.array([letter for _, letter in keys], pa.string()),
            "place": pa.array(range(len(keys)), pa.int64()),
        }
    )
    borders = [0, *sorted(cut for cut in cuts if cut <= len(keys)), len(keys)]
    return [rows.slice(start, end - start) for start, end in itertools.pairwise(borders)]


@given(KEYS, st.lists(st.integers(0, 30), max_size=6), st.integers(1, 300))
def test_the_last_row_of_each_key_is_kept_wherever_tables_are_cut(
    keys: list[tuple[int, str]], cuts: list[int], limit: int
) -> None:
    chunks = list(in_chunks(deduplicated(_tables(keys, cuts), ["number", "letter"]), limit))

    found = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    assert found == [(*key, place) for place, key in sorted((place, key) for key, place in _last(keys).items())]
    assert all(chunk.num_rows for chunk in chunks)


def _last(keys: list[tuple[int, str]]) -> dict[tuple[int, str], int]:
    return {key: place for place, key in enumerate(keys)}


@pytest.mark.parametrize("limit", [1, 80, 10_000])
def test_chunks_have_about_the_size_that_is_asked_for(limit: int) -> None:
    rows = pa.table({"number": pa.array(range(100), pa.int64())})

    chunks = list(in_chunks([rows.slice(0, 7), rows.slice(7)], limit))

    assert pa.concat_tables(chunks).column("number").to_pylist() == list(range(100))
    assert max(chunk.nbytes for chunk in chunks) <= max(limit, 8)
