"""Point lookups stop at the newest generation that has the key, and touch nothing that cannot."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, TableReader
from memwal_core.errors import InvalidRequestError
from memwal_core.reader import GenerationSource
from memwal_core.reader.merged import MergedReader
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people
from testkit.tables.readable import keys_of


class _Recorder:
    """Answers as told and remembers which generations were asked for."""

    def __init__(self, negative: set[int] | None = None) -> None:
        self.asked: list[int] = []
        self._negative = negative or set()

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        self.asked.append(source.generation)
        return np.full(keys.num_rows, source.generation not in self._negative)


def _three_generations(uri: str) -> None:
    with TableWriter.open(make_people_table(uri, rows=people(*range(10)), buckets=1)) as writer:
        for number in (1, 2, 3):
            writer.put(people(number, 7, name=f"gen{number}"))
            writer.flush()


@pytest.mark.req("RD-42", "RD-43", "RD-46", "RD-61")
def test_generations_are_asked_newest_first_until_the_key_is_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    _three_generations(uri)
    for key, name, asked in [(7, "gen3", [3]), (2, "gen2", [3, 2]), (1, "gen1", [3, 2, 1]), (5, "p5", [3, 2, 1])]:
        guard = _Recorder()
        table = MergedReader(TableReader.open(uri), guard=guard)

        assert table.lookup(keys_of(key), ["name"]).column("name").to_pylist() == [name]
        assert guard.asked == asked


@pytest.mark.req("RD-44", "RD-65")
def test_generation_with_a_negative_filter_is_not_opened(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    _three_generations(uri)
    for directory in Path(uri).glob("_mem_wal/*/*_gen_[23]"):
        (directory / "_versions").rename(directory / "away")  # Opening it fails.
    table = MergedReader(TableReader.open(uri), guard=_Recorder(negative={2, 3}))

    assert table.lookup(keys_of(1), ["name"]).column("name").to_pylist() == ["gen1"]


@pytest.mark.req("RD-21", "RD-48")
def test_positive_filter_without_the_key_only_costs_a_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    _three_generations(uri)

    assert Table.open(uri).lookup(keys_of(9), ["name"]).column("name").to_pylist() == ["p9"]


@pytest.mark.req("RD-46")
def test_tombstone_ends_the_search(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    _three_generations(uri)
    with TableWriter.open(BaseTable.open(uri)) as writer:
        writer.delete(keys_of(7, 1))
        writer.flush()
    table = Table.open(uri)

    assert table.lookup(keys_of(7, 2, 1)).column("id").to_pylist() == [2]


@pytest.mark.req("RD-45", "RD-59", "RD-60")
@pytest.mark.parametrize("with_btree", [False, True])
def test_last_of_several_rows_of_a_key_is_taken(tmp_path: Path, with_btree: bool) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, buckets=1)) as writer:
        for name in ("a", "b", "c"):
            writer.put(people(1, 2, name=name))
        writer.put(people(2, name="d"))
        writer.flush()
    (generation,) = Path(uri).glob("_mem_wal/*/*_gen_1")
    if with_btree:
        lance.dataset(str(generation)).create_scalar_index("id", "BTREE")
    rows = Table.open(uri).lookup(keys_of(2, 1), ["id", "name"])

    assert rows.to_pylist() == [{"id": 2, "name": "d"}, {"id": 1, "name": "c"}]


@pytest.mark.req("RD-49")
def test_regions_made_by_hand_are_all_candidates(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1), buckets=1)
    for number in (1, 2):
        write_native_generations(uri, native_region_id(number), [[Put(people(number * 10, name=f"r{number}"))]])

    rows = Table.open(uri).lookup(keys_of(20, 10, 1, 5), ["name"])
    assert rows.column("name").to_pylist() == ["r2", "r1", "p1"]


@pytest.mark.parametrize("keys", [3, 2500])
def test_many_keys_are_found_in_the_order_asked_for(tmp_path: Path, keys: int) -> None:
    uri = str(tmp_path / "t")
    with TableWriter.open(make_people_table(uri, rows=people(*range(3000)), buckets=4)) as writer:
        writer.put(people(*range(0, 3000, 2), name="even"))
        writer.flush()
    wanted = list(range(keys))[::-1]
    rows = Table.open(uri).lookup(keys_of(*wanted, 99_999), ["id", "name"])

    assert rows.column("id").to_pylist() == wanted
    assert rows.column("name").to_pylist() == ["even" if key % 2 == 0 else f"p{key}" for key in wanted]


def test_composite_text_and_binary_keys_are_found(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
            pa.field("b", pa.binary(), nullable=False, metadata=PRIMARY_KEY_METADATA),
            pa.field("c", pa.bool_(), nullable=False, metadata=PRIMARY_KEY_METADATA),
            pa.field("v", pa.int32()),
        ]
    )
    rows = pa.table({"a": ["it's", "it's", "ü"], "b": [b"\x00'", b"x", b""], "c": [True, False, True], "v": [1, 2, 3]})
    uri = str(tmp_path / "t")
    lance.write_dataset(rows.cast(schema), uri)
    table = Table.open(uri)

    found = table.lookup(rows.select(["c", "b", "a"]).slice(1), ["v"])
    assert found.column("v").to_pylist() == [2, 3]


@pytest.mark.parametrize(
    "keys",
    [
        pa.table({"name": ["x"]}),
        pa.table({"id": ["x"]}),
        pa.table({"id": [1.5]}),
        pa.table({"id": pa.array([None], pa.int64())}),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, keys: pa.Table) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri)

    with pytest.raises(InvalidRequestError):
        Table.open(uri).lookup(keys)


@pytest.mark.parametrize("key", ["1", 1.0, True])
def test_keys_that_can_be_cast_without_a_loss_are_looked_up(tmp_path: Path, key: object) -> None:
    make_people_table(str(tmp_path / "t"), rows=people(1, 2))

    assert Table.open(str(tmp_path / "t")).lookup(pa.table({"id": [key]}))["name"].to_pylist() == ["p1"]


@pytest.mark.req("RD-42")
@pytest.mark.parametrize("key_type", [pa.int64(), pa.uint64(), pa.int16()])
def test_many_lookups_in_one_base_version_find_the_same_as_a_few(tmp_path: Path, key_type: pa.DataType) -> None:
    """After some dozens, keys of the base table are held in memory and Lance's search is not asked any more."""
    uri = str(tmp_path / "t")
    rng = np.random.default_rng(3)
    numbers = rng.permutation(np.arange(0 if key_type == pa.uint64() else -300, 300)).tolist()
    key = pa.field("id", key_type, nullable=False, metadata=PRIMARY_KEY_METADATA)
    schema = pa.schema([key, pa.field("name", pa.string())])
    rows = pa.table([pa.array(numbers, key_type), [f"p{number}" for number in numbers]], schema=schema)
    lance.write_dataset(rows, uri, max_rows_per_file=100)
    lance.dataset(uri).delete("name LIKE '%7'")
    table = Table.open(uri)
    expected = {number: f"p{number}" for number in numbers if not str(number).endswith("7")}

    def asked(*ids: int) -> dict[int, str]:
        found = table.lookup(pa.table([pa.array(ids, key_type)], schema=pa.schema([key])))
        assert found.schema.remove_metadata().equals(schema)
        return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))

    one_by_one = [asked(number) for number in (*numbers, 5000)]
    assert {key: name for found in one_by_one for key, name in found.items()} == expected
    assert asked(*numbers, 5000, 6000) == expected
    assert list(asked(*numbers)) == [number for number in numbers if number in expected]

    lance.write_dataset(pa.table([pa.array([5000], key_type), ["new"]], schema=schema), uri, mode="append")
    assert asked(5000) == {5000: "new"}
    assert asked(numbers[0], 6000) == {key: name for key, name in expected.items() if key == numbers[0]}
    for number in range(7000, 7100):
        assert asked(number) == {}
    for data in (tmp_path / "t" / "data").iterdir():
        data.rename(data.with_suffix(".gone"))
    assert asked(7000) == {}  # The keys tell; no file is read.
