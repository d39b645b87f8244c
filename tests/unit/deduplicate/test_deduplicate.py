"""The rule of the newest row against a dictionary that replays every write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.deduplicate import NewestRows, deduplicate

Write = tuple[int, bool]
"""A key, and whether it is deleted."""

KEYS: dict[str, pa.Schema] = {
    "an integer": pa.schema([("id", pa.int64())]),
    "text": pa.schema([("id", pa.string())]),
    "an integer and bytes": pa.schema([("a", pa.int8()), ("b", pa.binary())]),
}
SOURCES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), min_size=1, max_size=6)


@dataclass(frozen=True)
class Source:
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]


def _key(number: int, schema: pa.Schema) -> tuple[object, ...]:
    if len(schema) > 1:
        return number % 3, str(number).encode()
    return (number if pa.types.is_integer(schema.field(0).type) else f"key {number}",)


def _source(writes: Sequence[Write], schema: pa.Schema) -> Source:
    rows = [_key(number, schema) for number, _ in writes]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return Source(pa.table(columns, schema=schema), np.array([deletes for _, deletes in writes], dtype=bool))


def _found(sources: Sequence[Sequence[Write]], kind: str) -> NewestRows:
    schema = KEYS[kind]
    return deduplicate([_source(writes, schema) for writes in sources], schema.names)


def _replayed(sources: Sequence[Sequence[Write]]) -> dict[int, tuple[int, int, bool]]:
    """Return for each key the source and the row there that counts, and whether it deletes."""
    return {
        number: (place, row, deletes)
        for place, writes in enumerate(sources)
        for row, (number, deletes) in enumerate(writes)
    }


def _placed(newest: NewestRows, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    return [(place, row) for place, own in enumerate(newest.by_source(rows)) for row in own.tolist()]


@pytest.mark.req("MRG-07", "RD-02", "RD-04")
@pytest.mark.parametrize("kind", KEYS)
@settings(derandomize=True, deadline=None)
@given(sources=SOURCES)
def test_rows_that_survive_are_those_of_a_dictionary(kind: str, sources: list[list[Write]]) -> None:
    newest, expected = _found(sources, kind), _replayed(sources)

    assert _placed(newest, newest.live) == sorted((s, r) for s, r, deletes in expected.values() if not deletes)
    assert _placed(newest, newest.tombstones) == sorted((s, r) for s, r, deletes in expected.values() if deletes)
    assert _placed(newest, newest.last) == sorted((s, r) for s, r, _ in expected.values())


@pytest.mark.req("MRG-07", "RD-04")
@pytest.mark.parametrize("kind", KEYS)
@settings(derandomize=True, deadline=None)
@given(sources=SOURCES)
def test_keys_of_survivors_and_of_tombstones_are_each_named_once(kind: str, sources: list[list[Write]]) -> None:
    newest, expected, schema = _found(sources, kind), _replayed(sources), KEYS[kind]

    def named(rows: npt.NDArray[np.int64]) -> list[tuple[object, ...]]:
        keys = newest.keys_of(rows)
        assert keys.schema == schema
        return sorted(zip(*(column.to_pylist() for column in keys.columns), strict=True))

    assert named(newest.live) == sorted(
        _key(number, schema) for number, (*_, deletes) in expected.items() if not deletes
    )
    assert named(newest.tombstones) == sorted(
        _key(number, schema) for number, (*_, deletes) in expected.items() if deletes
    )
    assert newest.keys.num_rows == sum(map(len, sources))


@settings(derandomize=True, deadline=None)
@given(sources=SOURCES, data=st.data())
def test_any_ascending_rows_go_to_the_sources_that_hold_them(sources: list[list[Write]], data: st.DataObject) -> None:
    every = [(place, row) for place, writes in enumerate(sources) for row in range(len(writes))]
    chosen = sorted(data.draw(st.sets(st.integers(0, len(every) - 1)))) if every else []
    newest = _found(sources, "text")

    parts = list(newest.by_source(np.array(chosen, dtype=np.int64)))

    assert len(parts) == len(sources)
    assert [(place, row) for place, own in enumerate(parts) for row in own.tolist()] == [every[row] for row in chosen]


def test_row_that_is_deleted_and_written_again_survives_once() -> None:
    newest = _found([[(1, False), (2, False)], [(1, True), (2, True)], [(1, False)]], "an integer")

    assert _placed(newest, newest.live) == [(2, 0)]
    assert _placed(newest, newest.tombstones) == [(1, 1)]


def test_sources_without_rows_have_no_survivors() -> None:
    newest = _found([[], []], "an integer")

    assert [own.tolist() for own in newest.by_source(newest.live)] == [[], []]
    assert newest.keys_of(newest.last).num_rows == 0
