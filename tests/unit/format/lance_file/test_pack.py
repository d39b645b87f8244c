"""Files packed by hand are read by Lance as those that Lance writes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from memwal_core.format.checksum import EMPTY_SLOT, verify_checksum
from memwal_core.format.lance_file import pack, pages
from memwal_core.wal import entry_file_version
from memwal_core.wal.lance_codec import file_version, schema_range
from testkit.tables.wal_entries import LANCE_CODEC, written_entry

ROWS = 300
METADATA = {"writer_epoch": "7", "memwal:attempt": "ab"}


def _with_nulls(values: pa.Array) -> pa.Array:
    mask = np.random.default_rng(3).random(len(values)) < 0.3
    return pa.array(
        [None if null else value for null, value in zip(mask, values.to_pylist(), strict=True)], values.type
    )


def _columns() -> dict[str, pa.Array]:
    rng = np.random.default_rng(11)
    whole = pa.array(rng.integers(0, 200, ROWS))
    text = pa.array(["é" * int(size) for size in rng.integers(0, 5, ROWS)])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 4, dtype=np.float32)), 4)
    full = {
        "int64": whole,
        "uint8": whole.cast(pa.uint8()),
        "float64": pa.array(rng.random(ROWS)),
        "float16": pa.array(rng.random(ROWS).astype(np.float16)),
        "bool": pa.array(rng.random(ROWS) < 0.5),
        "text": text,
        "large_text": text.cast(pa.large_string()),
        "binary": text.cast(pa.binary()),
        "vector": vectors,
        "instant": whole.cast(pa.timestamp("us", "UTC")),
        "date": whole.cast(pa.int32()).cast(pa.date32()),
        "time": whole.cast(pa.time64("us")),
        "duration": whole.cast(pa.duration("ms")),
    }
    nulls = {f"{name}_nulls": _with_nulls(values) for name, values in full.items()}
    only = {f"{name}_only_nulls": pa.nulls(ROWS, values.type) for name, values in full.items()}
    return {**full, **nulls, **only}


TABLE = pa.table(_columns())
SLICES = {
    "whole": TABLE,
    "middle": TABLE.slice(3, 177),
    "one row": TABLE.slice(13, 1),
    "two pieces": pa.concat_tables([TABLE.slice(5, 20), TABLE.slice(100, 3)]),
    "many pieces": pa.concat_tables([TABLE.slice(start, 9) for start in range(0, 200, 10)]),
    "an empty piece": pa.concat_tables([TABLE.slice(5, 20), TABLE.slice(0, 0)]),
}


def _written(path: Path, rows: pa.Table, version: str) -> bytes:
    return written_entry(path, LANCE_CODEC, rows, METADATA, version)


@pytest.mark.req("FMT-09", "FMT-10", "WRT-36", "WRT-37")
@pytest.mark.parametrize("max_page_bytes", [32 * 1024 * 1024, 700])
@pytest.mark.parametrize("rows", SLICES.values(), ids=SLICES)
def test_lance_reads_every_plain_type_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: pa.Table, max_page_bytes: int
) -> None:
    monkeypatch.setattr(pages, "_MAX_PAGE_BYTES", max_page_bytes)
    version = entry_file_version(rows.schema, "2.2")
    assert version == "2.0"
    data = _written(tmp_path / "packed.lance", rows, version)
    assert verify_checksum(data, schema_range)
    assert file_version(data) == (2, 0)
    reader = LanceFileReader(str(tmp_path / "packed.lance"))
    found = reader.read_all().to_table()
    assert found.schema.remove_metadata().equals(rows.schema)
    for name in rows.column_names:
        assert found.column(name).combine_chunks().equals(rows.column(name).combine_chunks()), name
    metadata = reader.metadata().schema.metadata
    assert {key.encode(): value.encode() for key, value in METADATA.items()}.items() <= metadata.items()
    last = rows.num_rows - 1
    assert reader.take_rows([last]).to_table().column("text").to_pylist() == [rows.column("text")[last].as_py()]


def test_a_packed_file_and_one_by_lance_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = TABLE.select([name for name in TABLE.column_names if "text" not in name and "binary" not in name])
    packed = _written(tmp_path / "packed.lance", rows, "2.0")  # Lance would look for a dictionary in texts.
    monkeypatch.setattr("memwal_core.wal.lance_codec.plain_shape", lambda _: None)
    fresh = type(LANCE_CODEC)({})
    written_entry(tmp_path / "lance.lance", fresh, rows, METADATA)
    ours, lances = (LanceFileReader(str(tmp_path / name)) for name in ("packed.lance", "lance.lance"))
    assert packed != (tmp_path / "lance.lance").read_bytes()
    assert ours.read_all().to_table().equals(lances.read_all().to_table())
    for name, own, other in zip(rows.column_names, ours.metadata().columns, lances.metadata().columns, strict=True):
        # Where a whole list is NULL, Lance marks its items, too.
        assert own.pages[0].encoding == other.pages[0].encoding or name.startswith("vector_")


def test_pages_share_memory_with_the_rows() -> None:
    rows = TABLE.select(["int64", "vector"])
    shape = pack.file_shape(rows.schema, b"")
    parts = pack.pack(rows, shape, {})
    addresses = {part.address for part in parts if isinstance(part, pa.Buffer)}
    assert rows.column("int64").chunk(0).buffers()[1].address in addresses
    assert rows.column("vector").chunk(0).values.buffers()[1].address in addresses


def test_null_items_of_a_list_are_left_to_lance(tmp_path: Path) -> None:
    rows = pa.table({"vector": pa.array([[1.0, None], None, [2.0, 3.0]], pa.list_(pa.float32(), 2))})
    data = _written(tmp_path / "entry.lance", rows, entry_file_version(rows.schema, "2.2"))
    assert verify_checksum(data, schema_range)
    assert file_version(data) == (2, 0)
    assert LanceFileReader(str(tmp_path / "entry.lance")).read_all().to_table().to_pydict() == rows.to_pydict()


@pytest.mark.parametrize(
    "data_type", [pa.list_(pa.int64()), pa.struct({"a": pa.int64()}), pa.dictionary(pa.int8(), pa.string())]
)
def test_other_types_keep_the_version_of_the_table(tmp_path: Path, data_type: pa.DataType) -> None:
    rows = pa.table({"x": pa.nulls(3, data_type)})
    assert entry_file_version(rows.schema, "2.2") == "2.2"
    data = _written(tmp_path / "entry.lance", rows, "2.2")
    assert verify_checksum(data, schema_range)
    assert EMPTY_SLOT.encode() not in data
    assert LanceFileReader(str(tmp_path / "entry.lance")).read_all().to_table().num_rows == 3
