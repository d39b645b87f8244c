"""The order of a flushed MemTable's own data files, without its manifest."""

from __future__ import annotations

import pytest

from memwal_core.format.paths import wal_entry_name
from memwal_core.jobs.repair.sources import in_write_order

DIRECTORY = "aaaaaaaa_gen_2"


def entry(wal_id: int) -> str:
    return wal_entry_name(wal_id, ".lance")


def packed(place: int) -> str:
    return f"{DIRECTORY}_{place}.lance"


@pytest.mark.parametrize(
    "ordered",
    [
        [],
        [packed(0)],
        [entry(4), entry(5), entry(300)],
        [entry(4), packed(1), entry(7)],
        [packed(0), entry(9), packed(2), entry(12)],
        [entry(1), entry(2), packed(2)],
    ],
)
def test_files_have_the_place_that_their_rows_had(ordered: list[str]) -> None:
    for names in (ordered, sorted(ordered), sorted(ordered, reverse=True)):
        assert in_write_order(names, DIRECTORY) == ordered


def test_files_of_another_program_have_no_order() -> None:
    assert in_write_order(["a.lance"], DIRECTORY) == ["a.lance"]
    assert in_write_order(["a.lance", "b.lance"], DIRECTORY) == []
    assert in_write_order(["a.lance", entry(3)], DIRECTORY) == []
