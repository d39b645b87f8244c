"""Files packed by hand are read without Lance, and anything else is left to Lance."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

from memwal_core.errors import CorruptionError
from memwal_core.format import wire
from memwal_core.format.checksum import CHECKSUM_KEY, EMPTY_SLOT, sealed
from memwal_core.format.lance_file import pack, pages
from memwal_core.format.lance_file import schema as lance_schema
from memwal_core.format.lance_file.encodings import COLUMN_ENCODING, NotPlainError
from memwal_core.format.lance_file.unpack import known_schema, unpack
from memwal_core.format.malformed import MalformedError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.storage import open_store
from memwal_core.wal import lance_codec, read_entries
from memwal_core.wal.lance_codec import LanceCodec, schema_range
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.wal_entries import LANCE_CODEC, written_entry

METADATA = {"writer_epoch": "7", "memwal:attempt": "ab"}
SECONDS = st.integers(0, 86_399)
SMALL = st.integers(0, 100)
PLAIN: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int8(): SMALL,
    pa.int16(): SMALL,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint32(): SMALL,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.sampled_from([0.0, 1.5, -2.0]).map(np.float16),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    pa.large_string(): st.text("aé𝄞", max_size=6),
    pa.binary(): st.binary(max_size=6),
    pa.large_binary(): st.binary(max_size=6),
    pa.date32(): SMALL,
    pa.date64(): SMALL.map(lambda day: day * 86_400_000),
    pa.time32("s"): SECONDS,
    pa.time64("us"): SECONDS,
    pa.timestamp("us", "UTC"): SMALL,
    pa.timestamp("ns"): SMALL,
    pa.duration("ms"): SMALL,
    pa.list_(pa.float32(), 3): st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
    pa.list_(pa.int8(), 2): st.lists(SMALL, min_size=2, max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows of plain types: with NULLs, cut out of longer arrays, in several pieces."""
    chosen = draw(st.lists(st.sampled_from(list(PLAIN)), min_size=1, max_size=4))
    rows = draw(st.integers(1, 20))
    columns = {}
    for number, data_type in enumerate(chosen):
        values = PLAIN[data_type]
        cells = draw(st.sampled_from([values, values | st.none(), st.none()]))
        columns[f"c{number}"] = pa.array(draw(st.lists(cells, min_size=rows, max_size=rows)), data_type)
    whole = pa.table(columns)
    pieces = draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(0, rows)), max_size=6))
    return pa.concat_tables([whole.slice(*piece) for piece in pieces] or [whole])


def _must_not_be_called(*_: object) -> None:
    raise AssertionError("Lance's reader was asked")


def _found(message: bytes, columns: int):
    return lance_schema.described_schema(message, columns)


def _packed(path: Path, rows: pa.Table) -> bytes:
    return written_entry(path, LANCE_CODEC, rows, METADATA)


def _as_lance_reads(path: Path) -> pa.Table:
    return LanceFileReader(str(path)).read_all().to_table()


@pytest.mark.req("FMT-09", "FMT-10", "WRT-36")
@pytest.mark.parametrize("max_page_bytes", [32 * 1024 * 1024, 40])
@settings(max_examples=40, deadline=None)
@given(rows=tables())
def test_what_was_packed_is_unpacked_as_lance_reads_it(tmp_path_factory, max_page_bytes: int, rows: pa.Table) -> None:
    assume(rows.num_rows > 0)
    path = tmp_path_factory.getbasetemp() / "unpacked.lance"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_MAX_PAGE_BYTES", max_page_bytes)
        data = _packed(path, rows)
    found, metadata = unpack(data, _found)
    found.validate(full=True)
    assert found.equals(rows)
    lances = _as_lance_reads(path)
    assert found.equals(lances)
    assert metadata == lances.schema.metadata


def test_schemas_come_back_with_their_metadata(tmp_path: Path) -> None:
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
    schema = pa.schema(fields, metadata={"owner": "someone"})
    rows = pa.table({"id": [1, 2], "v": [[1.0, 2.0], None]}, schema=schema)
    found, metadata = unpack(_packed(tmp_path / "a.lance", rows), _found)
    assert found.schema.equals(schema.remove_metadata(), check_metadata=True)
    lances = _as_lance_reads(tmp_path / "a.lance").schema
    assert found.schema.equals(lances.remove_metadata(), check_metadata=True)
    assert metadata == lances.metadata
    assert metadata[b"owner"] == b"someone"


def test_unpacked_values_share_memory_with_the_file(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(50)), "text": ["some text"] * 50})
    data = _packed(tmp_path / "a.lance", rows)
    start = pa.py_buffer(data).address
    found, _ = unpack(data, _found)
    for name, number in (("id", 1), ("text", 2)):
        assert start <= found.column(name).chunk(0).buffers()[number].address < start + len(data), name


@pytest.fixture
def region_id() -> RegionId:
    return IdSource().region_id()


def _stored(store: FaultyStore, region_id: RegionId, wal_id: int, data: bytes) -> None:
    store.inner.put(wal_entry_path(region_id, wal_id, ".lance"), data)


def test_an_entry_is_read_by_one_request_and_without_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region_id: RegionId
) -> None:
    store = FaultyStore(open_store(str(tmp_path / "table")))
    rows = pa.table({"id": pa.array(range(5)), "text": ["a", None, "", "bc", "d"]})
    for wal_id in range(1, 101):
        _stored(store, region_id, wal_id, _packed(tmp_path / "a.lance", rows.slice(wal_id % 3)))
    LANCE_CODEC.read(store, region_id, 1)  # Lance tells once what the description of the schema means.
    before = len(store.calls)
    monkeypatch.setattr(lance_codec, "LanceFileReader", _must_not_be_called)
    entries = read_entries(store, region_id, LANCE_CODEC, range(1, 101), 4)
    assert [entry.wal_id for entry in entries] == list(range(1, 101))
    assert all(entry.rows.equals(rows.slice(entry.wal_id % 3)) for entry in entries)
    assert {entry.file_version for entry in entries} == {(2, 0)}
    assert {call.operation for call in store.calls[before:]} == {"get"}
    assert len(store.calls) - before == 100


@pytest.mark.parametrize("how", ["values that are not plain", "another version", "written by Lance"])
def test_other_files_are_left_to_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region_id: RegionId, how: str
) -> None:
    rows = pa.table({"v": pa.array([[1.0, None], None, [2.0, 3.0]], pa.list_(pa.float32(), 2))})
    if how == "written by Lance":
        rows = pa.table({"text": ["same"] * 300})
        monkeypatch.setattr(lance_codec, "plain_shape", lambda _: None)
    path = tmp_path / "a.lance"
    written_entry(path, LanceCodec({}), rows, METADATA, "2.2" if how == "another version" else "2.0")
    with pytest.raises(NotPlainError):
        unpack(path.read_bytes(), _found)
    store = FaultyStore(open_store(str(tmp_path / "table")))
    _stored(store, region_id, 1, path.read_bytes())
    assert LANCE_CODEC.read(store, region_id, 1).rows.to_pydict() == rows.to_pydict()


def _changes(data: bytes, positions: range) -> list[bytes]:
    return [
        data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :] for at in positions for bits in (0x01, 0x80, 0x41, 0xFF)
    ]


MIXED = pa.table(
    {
        "id": pa.array(range(9)),
        "flag": [True, None, False] * 3,
        "text": ["a", None, "", "bc", "é", "f", None, "g", "h"],
        "v": pa.array([[1.0, 2.0], None, [3.0, 4.0]] * 3, pa.list_(pa.float32(), 2)),
        "none": pa.nulls(9, pa.int32()),
    }
)


@pytest.mark.req("LEASE-26", "WRT-38")
@pytest.mark.parametrize("max_page_bytes", [32 * 1024 * 1024, 24])
def test_a_change_where_pages_are_described_never_gives_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_page_bytes: int
) -> None:
    monkeypatch.setattr(pages, "_MAX_PAGE_BYTES", max_page_bytes)
    data = _packed(tmp_path / "a.lance", MIXED)
    known = known_schema(MIXED.schema)
    refused = 0
    # The checksum is left out on purpose: it would find every one of these.
    for changed in _changes(data, range(schema_range(data)[0], len(data))):
        try:
            found, _ = unpack(changed, lambda *_: known)
        except NotPlainError:
            refused += 1
            continue
        assert found.equals(MIXED)
    assert refused > len(data) - schema_range(data)[1]


def test_more_rows_than_bytes_can_hold_are_refused_before_room_is_made(tmp_path: Path, region_id: RegionId) -> None:
    """A column that is all NULL has no bytes, so its length could be anything."""
    schema = pa.schema([("none", pa.int64())])
    shape = lance_schema.plain_shape(schema)
    assert shape is not None
    count = 2**60
    page = wire.nested(2, wire.number(3, count) + shape.columns[0].encodings[2])
    slot = {"writer_epoch": "7", CHECKSUM_KEY: EMPTY_SLOT}
    tail = pack._tail(0, [COLUMN_ENCODING + page], pack._descriptor(shape.message, slot, count))
    data = b"".join(sealed([tail], 0, (0, len(tail))))

    with pytest.raises(MalformedError, match="cannot hold"):
        unpack(data, _found)
    store = FaultyStore(open_store(str(tmp_path / "table")))
    _stored(store, region_id, 1, data)
    with pytest.raises(CorruptionError):
        LANCE_CODEC.read(store, region_id, 1)


def test_ends_of_texts_that_are_damaged_never_point_outside(tmp_path: Path) -> None:
    rows = MIXED.select(["text"])
    data = _packed(tmp_path / "a.lance", rows)
    known = known_schema(rows.schema)
    outcomes: list[int | None] = []
    for changed in _changes(data, range(9 * 8)):
        try:
            found, _ = unpack(changed, lambda *_: known)
            found.validate()
            assert found.column("text").cast(pa.binary()).chunk(0).buffers()[2].size == len("abcéfgh".encode())
            outcomes.append(found.num_rows)
        except NotPlainError:
            outcomes.append(None)
    assert None in outcomes


def test_a_damaged_entry_is_refused_before_it_is_unpacked(tmp_path: Path, region_id: RegionId) -> None:
    data = _packed(tmp_path / "a.lance", MIXED)
    store = FaultyStore(open_store(str(tmp_path / "table")))
    for position in (0, schema_range(data)[0], schema_range(data)[1], len(data) - 1):
        _stored(store, region_id, 1, data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(CorruptionError):
            LANCE_CODEC.read(store, region_id, 1)
