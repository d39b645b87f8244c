"""Lookups use the key filters that lie beside flushed MemTables, and do without those that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.key_filter import KEY_FILTER_NAME
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import keys_of


def _two_generations(uri: str) -> list[Path]:
    with TableWriter.open(make_people_table(uri, rows=people(*range(10)), buckets=1)) as writer:
        for number in (1, 2):
            writer.put(people(number, number + 100, name=f"gen{number}"))
            writer.flush()
    return sorted(Path(uri).glob("_mem_wal/*/*_gen_*"), key=lambda path: path.name[-1])


@pytest.mark.req("RD-43", "RD-44", "RD-65")
def test_generation_whose_filter_excludes_the_key_is_not_opened(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for generation in _two_generations(uri):
        (generation / "_versions").rename(generation / "away")  # Opening it fails.

    assert Table.open(uri).lookup(keys_of(5, 55)).column("id").to_pylist() == [5]


@pytest.mark.req("RD-21")
@pytest.mark.parametrize("damage", ["missing", "overwritten"])
def test_key_is_found_without_a_usable_filter(tmp_path: Path, damage: str) -> None:
    uri = str(tmp_path / "t")
    for generation in _two_generations(uri):
        path = generation / KEY_FILTER_NAME
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(b"x" * path.stat().st_size)
    rows = Table.open(uri).lookup(keys_of(1, 2, 5), ["name"])

    assert rows.column("name").to_pylist() == ["gen1", "gen2", "p5"]
