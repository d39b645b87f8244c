"""Reading the unflushed tail of a WAL with as few requests as it has entries."""

import uuid
from collections import Counter

import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage import open_store
from memwal_core.wal import ArrowCodec, EntryShape, lance_codec, noted_column_ids, read_tail
from memwal_core.wal.entry import ATTEMPT_KEY, WRITER_EPOCH_KEY
from memwal_core.wal.lance_codec import LanceCodec
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.wal_entries import LANCE_CODEC, written_entry

REGION = RegionId(uuid.UUID("00000000-0000-4000-8000-000000000001"))
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
CONCURRENCY = 4


@pytest.fixture
def entry(tmp_path) -> bytes:
    return written_entry(tmp_path / "entry", LANCE_CODEC, ROWS, {WRITER_EPOCH_KEY: "3", ATTEMPT_KEY: "ab"})


@pytest.fixture(params=["local", "memory"])
def store(tmp_path, request) -> FaultyStore:
    return FaultyStore(open_store("memory://" if request.param == "memory" else str(tmp_path / "table")))


def _path(wal_id: int) -> str:
    return wal_entry_path(REGION, wal_id, ".lance")


def _fill(store: FaultyStore, entry: bytes, *wal_ids: int) -> None:
    for wal_id in wal_ids:
        store.inner.put(_path(wal_id), entry)


def _requests(store: FaultyStore) -> Counter[str]:
    return Counter(call.operation for call in store.calls if call.path.endswith(".lance"))


@pytest.mark.req("WRT-17")
@pytest.mark.parametrize("length", [0, 1, 2, 16, 100])
def test_a_tail_is_read_without_looking_for_its_entries_first(store, entry: bytes, length: int) -> None:
    _fill(store, entry, *range(8, 8 + length))
    found = read_tail(store, REGION, LANCE_CODEC, 7, 0, CONCURRENCY)
    assert [each.wal_id for each in found] == list(range(8, 8 + length))
    requests = _requests(store)
    assert requests["head"] == 1, "behind the end, whether the WAL goes on there"
    assert set(requests) == {"get", "head"}
    # The end is found by asking for what is not there: once, or by as many requests at once as entries were found.
    beyond = 1 if store.kind == "local" else max(1, min(length, 8 * CONCURRENCY))
    assert requests["get"] <= length + beyond


def test_entries_that_somebody_has_seen_are_fetched_together(store, entry: bytes) -> None:
    _fill(store, entry, *range(1, 21))
    assert len(read_tail(store, REGION, LANCE_CODEC, 0, 20, CONCURRENCY)) == 20
    assert _requests(store)["get"] <= 20 + (1 if store.kind == "local" else 20)


def test_an_entry_written_while_later_ones_are_fetched_is_no_hole(store, entry: bytes) -> None:
    _fill(store, entry, 1, 2, 4)
    missed = Rule(lambda _: _fill(store, entry, 3), Moment.AFTER, frozenset({"get"}), lambda path: path == _path(2))
    store.add(missed)
    assert [each.wal_id for each in read_tail(store, REGION, LANCE_CODEC, 0, 0, CONCURRENCY)] == [1, 2, 3, 4]


def test_an_entry_written_while_it_is_fetched_with_later_ones_is_no_hole(entry: bytes) -> None:
    """It was missing when it was asked for, and there when the one after it was."""
    store = FaultyStore(open_store("memory://"))
    _fill(store, entry, 1, 2, 4)
    store.add(Rule(lambda _: _fill(store, entry, 3), Moment.BEFORE, frozenset({"get"}), lambda path: path == _path(4)))
    assert [each.wal_id for each in read_tail(store, REGION, LANCE_CODEC, 0, 4, 1)] == [1, 2, 3, 4]
    assert _requests(store)["get"] > 4


@pytest.mark.req("G-03")
@pytest.mark.parametrize("seen", [0, 2, 4])
def test_a_hole_is_corruption_although_nobody_has_seen_the_entry_behind_it(store, entry: bytes, seen: int) -> None:
    _fill(store, entry, 1, 2, 4)
    with pytest.raises(CorruptionError) as caught:
        read_tail(store, REGION, LANCE_CODEC, 0, seen, CONCURRENCY)
    assert caught.value.facts["missing_wal_id"] == 3


def test_rows_get_the_schema_that_fits_and_name_their_fields_otherwise(store, tmp_path) -> None:
    codec = LanceCodec({"id": (5,)})
    entry = written_entry(tmp_path / "named", codec, ROWS, {WRITER_EPOCH_KEY: "3", ATTEMPT_KEY: "ab"})
    store.inner.put(_path(1), entry)
    wanted = pa.schema([pa.field("id", pa.int64(), metadata={"a": "b"})])
    for number, fits in ((5, True), (6, False)):
        (found,) = read_tail(store, REGION, codec, 0, 0, 1, EntryShape(wanted, {"id": (number,)}))
        assert found.rows.schema.equals(wanted, check_metadata=True) == fits
        assert fits or found.rows.schema.field("id").metadata == {b"lance:field_id": b"5"}


def test_ids_of_fields_inside_are_those_that_pylance_notes() -> None:
    def noted(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"lance:field_id": str(number)})

    key = noted("key", pa.string(), 10).with_nullable(False)
    places = pa.map_(key, noted("value", pa.list_(noted("item", pa.int64(), 12)), 11))
    schema = pa.schema([noted("id", pa.int64(), 0), noted("m", places, 8), noted("l", pa.list_(pa.int64()), 13)])
    assert noted_column_ids(schema) == {"id": (0,), "m": (8, 9, 10, 11, 12), "l": (13,)}


@pytest.mark.parametrize("make", [LanceCodec, ArrowCodec])
def test_rows_name_the_fields_inside_of_their_columns(tmp_path, make) -> None:
    rows = pa.table({"id": [1], "place": [{"x": 1, "l": [{"y": 2}]}]})
    ids = {"id": (0,), "place": (1, 2, 7, 8, 9)}
    codec = make(ids)
    data = written_entry(tmp_path / "e", codec, rows, {WRITER_EPOCH_KEY: "3", ATTEMPT_KEY: "ab"}, "2.1")
    store = open_store(str(tmp_path / "t"))
    store.put(wal_entry_path(REGION, 1, codec.suffix), data)
    for inside, fits in (((2, 7, 8, 9), True), ((2, 7, 8, 10), False), ((), True)):
        shape = EntryShape(rows.schema, {"id": (0,), "place": (1, *inside)})
        found = make({}).decode(store, REGION, 1, data, shape).rows.schema
        assert (found.field("id").metadata is None) == fits
        assert fits or noted_column_ids(found) == ids
    assert EntryShape(rows.schema, ids).fits(EntryShape(rows.schema, {"id": (0,), "place": (1,)}).noted_schema)


NESTED = pa.table({"id": [1, 2], "place": [{"x": 1}, {"x": 2}]})
"""Only Lance can read entries of such rows."""


@pytest.fixture
def nested(tmp_path) -> bytes:
    return written_entry(tmp_path / "entry", LANCE_CODEC, NESTED, {WRITER_EPOCH_KEY: "3", ATTEMPT_KEY: "ab"}, "2.1")


@pytest.mark.req("T6")
@pytest.mark.slow
def test_an_entry_that_only_lance_can_read_is_read_by_another_process_first(
    store, nested: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, decode = [], lance_codec.decode_file_in_child
    monkeypatch.setattr(lance_codec, "decode_file_in_child", lambda *given: asked.append(decode(*given)))
    _fill(store, nested, 1, 2)

    found = read_tail(store, REGION, LANCE_CODEC, 0, 2, CONCURRENCY)

    assert [each.rows.column("place").to_pylist() for each in found] == [[{"x": 1}, {"x": 2}]] * 2
    assert asked == [2, 2]


@pytest.mark.req("T6")
def test_an_entry_that_ends_the_process_that_reads_it_is_damage(
    store, nested: bytes, entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(uri: str, _: object) -> None:
        raise CorruptionError("died", remedy="-", uri=uri, reason="it ends the process that decodes it, with SIGABRT")

    monkeypatch.setattr(lance_codec, "decode_file_in_child", die)
    _fill(store, entry, 1)
    assert len(read_tail(store, REGION, LANCE_CODEC, 0, 1, CONCURRENCY)) == 1  # Plain bytes are read by us.
    _fill(store, nested, 2)

    with pytest.raises(CorruptionError, match="ends the process that decodes it, with SIGABRT") as caught:
        read_tail(store, REGION, LANCE_CODEC, 0, 2, CONCURRENCY)

    assert caught.value.facts["wal_id"] == 2
