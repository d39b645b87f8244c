"""Fingerprints prove that keys are distinct only where they are, and find no copies in keys as people make them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from memwal_core.base_table.keys import fingerprints
from memwal_core.base_table.keys.fingerprints import count_distinct, count_distinct_here, split_fingerprints

ROWS = 100_000
NUMBERS = range(ROWS)

MADE_BY_PEOPLE = {
    "numbers": pa.table({"id": NUMBERS}),
    "high bits": pa.table({"id": [number << 40 for number in NUMBERS]}),
    "negative": pa.table({"id": [-number for number in NUMBERS]}),
    **{f"{width} digits": pa.table({"id": [f"{number:0{width}d}" for number in NUMBERS]}) for width in (8, 9, 16, 24)},
    **{f"{prefix}n": pa.table({"id": [f"{prefix}{number}" for number in NUMBERS]}) for prefix in ("ORD-", "customer:")},
    "hexadecimal": pa.table({"id": [f"urn:x-{number:09x}" for number in NUMBERS]}),
    "binary": pa.table({"id": [number.to_bytes(3, "big") for number in NUMBERS]}),
    "two numbers": pa.table({"a": [number // 300 for number in NUMBERS], "b": [number % 300 for number in NUMBERS]}),
    "text and number": pa.table({"a": [f"t{number // 300}" for number in NUMBERS], "b": [n % 300 for n in NUMBERS]}),
    "two texts": pa.table({"a": [str(n)[:3] for n in NUMBERS], "b": [str(n)[3:] for n in NUMBERS], "c": NUMBERS}),
}


def gathered(tables: list[pa.Table], parts: int) -> int | None:
    pieces: list[list[fingerprints.Fingerprints | None]] = [[] for _ in range(parts)]
    for part, piece in split_fingerprints(tables, parts):
        pieces[part].append(piece)
    found = [count_distinct(each) for each in pieces]
    return None if None in found else sum(each or 0 for each in found)


@pytest.mark.parametrize("keys", MADE_BY_PEOPLE.values(), ids=MADE_BY_PEOPLE)
@pytest.mark.parametrize("parts", [1, 7])
def test_distinct_keys_are_proven_and_one_copy_anywhere_is_not(keys: pa.Table, parts: int) -> None:
    again = keys.slice(ROWS // 3, 1)

    assert gathered([keys], parts) == ROWS
    assert count_distinct_here(lambda: [keys], ROWS) == ROWS
    assert gathered([keys, again], parts) is None
    assert count_distinct_here(lambda: [again, keys], ROWS + 1) is None


def test_key_without_a_value_is_never_proven() -> None:
    keys = pa.table({"a": [1, 2], "b": ["x", None]})

    assert gathered([keys], 3) is None
    assert count_distinct_here(lambda: [keys], 2) is None


@pytest.mark.parametrize("rows", [0, 1])
def test_few_keys_are_distinct(rows: int) -> None:
    keys = pa.table({"id": pa.array(range(rows), pa.int64())})

    assert gathered([keys], 2) == rows
    assert count_distinct_here(lambda: [keys], rows) == rows


@pytest.mark.parametrize("copied", [None, 0, ROWS // 2, ROWS - 1])
def test_more_keys_than_fit_are_read_again_for_each_part(monkeypatch: pytest.MonkeyPatch, copied: int | None) -> None:
    monkeypatch.setattr(fingerprints, "_HELD_ROWS", ROWS // 3)
    keys = MADE_BY_PEOPLE["hexadecimal"]
    tables = [keys] if copied is None else [keys, keys.slice(copied, 1)]
    reads = []

    def read() -> Iterator[pa.Table]:
        reads.append(len(reads))
        yield from tables

    found = count_distinct_here(read, sum(map(len, tables)))

    assert found == (ROWS if copied is None else None)
    assert len(reads) == 4 if found else len(reads) <= 4


def test_keys_that_meet_in_one_part_are_not_held_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_HELD_ROWS", ROWS // 2)
    same = pa.table({"id": [7] * ROWS})

    assert count_distinct_here(lambda: [same], ROWS) is None


def test_too_many_keys_are_left_to_the_query_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_HELD_ROWS", ROWS // 10)

    assert count_distinct_here(lambda: [MADE_BY_PEOPLE["numbers"]], ROWS) is None


def test_fewer_rows_than_the_table_names_prove_nothing_of_it() -> None:
    assert count_distinct_here(lambda: [MADE_BY_PEOPLE["numbers"]], ROWS + 1) == ROWS
