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


def test_a_few_large_rows_among_many_small_ones_are_divided() -> None:
    """All rows were taken for equally large: one chunk had five times the limit, and so had its WAL entry."""
    limit = 4_000
    texts = ["x" * 1_000] * 20 + ["x" * 9_000] + ["y"] * 500
    rows = pa.table({"place": range(len(texts)), "text": texts})

    chunks = list(in_chunks([rows], limit))

    assert pa.concat_tables(chunks).equals(rows)
    assert [chunk.num_rows for chunk in chunks if chunk.nbytes > limit] == [1]
    assert len(chunks) <= 2 * rows.nbytes // limit


@pytest.mark.parametrize("limit", [1_000, 100_000])
def test_chunks_have_no_dictionary_larger_than_their_rows(limit: int) -> None:
    """The dictionary of the whole batch was written again with each chunk."""
    values = pa.array([f"value {number:0100d}" for number in range(1_000)])
    codes = pa.array([number % 7 if number % 11 else None for number in range(500)], pa.int32())
    rows = pa.table({"place": range(500), "text": pa.DictionaryArray.from_arrays(codes, values)})

    chunks = list(in_chunks([rows], limit))

    assert pa.concat_tables(chunks).to_pylist() == rows.to_pylist()
    assert sum(chunk.nbytes for chunk in chunks) < rows.nbytes
    assert all(chunk.nbytes <= limit or chunk.num_rows == 1 for chunk in chunks)
