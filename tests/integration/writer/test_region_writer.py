"""The region writer on real storage: claim, put, replay, flush, fencing."""

import re
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import read_snapshot
from memwal_core.errors import CommitUnknownError, CorruptionError, FencedError, InvalidRequestError
from memwal_core.format.lance_field import column_ids
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import generation_path, manifest_path, wal_directory, wal_entry_name, wal_entry_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.ids import IdSource
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.memtable import memtable_schema, with_tombstones
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus, claim, raise_wal_hint
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.wal import WalAppender
from memwal_core.writer import RegionWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.rng import seeded_rng
from testkit.tables.people import PEOPLE, make_people_table, people, reopened, with_clock
from testkit.tables.wal_entries import LANCE_CODEC

FAST = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0))
SHARING = FAST.model_copy(update={"writer": WriterSettings(pack_below_bytes=0)})


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=FAST)


@pytest.fixture
def region_id(table):
    return _create_region(table)


def _manifests(table) -> ManifestStore:
    return ManifestStore(table.store, IdSource(seeded_rng(7)), settings=FAST.storage)


def _create_region(table, **fields):
    region_id = IdSource().region_id()
    _publish(table, RegionManifest(region_id=region_id, **{"status": RegionStatus.SEALED, **fields}))
    return region_id


def _publish(table, manifest: RegionManifest) -> None:
    """Write a manifest that no writer of ours would make, as the start of a scenario."""
    table.store.put_if_absent(manifest_path(manifest.region_id, manifest.version), encode_manifest(manifest))


def _open(table, region_id, **kwargs) -> RegionWriter:
    return RegionWriter.open(table, region_id, **kwargs)


def _ids(rows: pa.Table) -> list[int]:
    return rows.column("id").to_pylist()


def _flushed_rows(table, region_id, record) -> dict[int, str]:
    opened = lance.dataset(table.store.uri_of(generation_path(region_id, record.path)))
    rows = opened.to_table(columns=["id", "name"])
    assert len(set(_ids(rows))) == rows.num_rows
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


@pytest.mark.req("WRT-03", "WRT-43", "FMT-03", "FMT-09", "FMT-10", "FMT-11")
def test_durable_puts_are_numbered_entries_that_carry_the_epoch(table, region_id) -> None:
    with _open(table, region_id) as writer:
        receipts = [writer.put(people(i)) for i in range(5)]
    assert [receipt.wal_id for receipt in receipts] == [1, 2, 3, 4, 5]
    assert all(receipt.durable for receipt in receipts)
    entry = LANCE_CODEC.read(table.store, region_id, 5)
    assert (entry.writer_epoch, _ids(entry.rows)) == (writer.writer_epoch, [4])
    names = {Path(info.path).name for info in table.store.list_objects(wal_directory(region_id))}
    assert len(names) == 5
    assert all(name.endswith(".lance") for name in names)


@pytest.mark.req("WRT-27")
def test_a_refused_batch_leaves_no_trace(table, region_id) -> None:
    with _open(table, region_id) as writer:
        with pytest.raises(InvalidRequestError):
            writer.put(people(1).append_column("extra", pa.array([1])))
        assert writer.memtable.num_rows == 0
    assert list(table.store.list_objects(wal_directory(region_id))) == []


@pytest.mark.req("WRT-17", "WRT-19", "WRT-21", "WRT-22", "WRT-25", "WRT-87", "MEM-28", "MEM-29", "LEG-26")
def test_an_unclosed_writer_is_replayed_entry_by_entry(table, region_id) -> None:
    first = _open(table, region_id)
    first.put(people(1, name="old"))
    first.put(people(2))
    first.put(people(1, name="new"))
    again = [_open(table, region_id).memtable for _ in range(2)]
    for memtable in again:
        assert memtable.wal_mapping() == {0: (1, 0), 1: (2, 0), 2: (3, 0)}
        assert memtable.to_table(["id", "name"]).to_pydict() == {"id": [1, 2, 1], "name": ["old", "p2", "new"]}
    assert len(list(table.store.list_objects(wal_directory(region_id)))) == 3


@pytest.mark.req(
    "WRT-60",
    "WRT-61",
    "WRT-62",
    "WRT-65",
    "WRT-66",
    "WRT-69",
    "FMT-12",
    "FMT-13",
    "FMT-15",
    "FMT-20",
    "MEM-24",
    "MEM-26",
)
def test_a_flush_links_the_wal_files_and_records_the_generation(table, region_id) -> None:
    with _open(table.with_settings(SHARING), region_id) as writer:
        writer.put(people(1, 2, name="old"))
        writer.put(people(2, 3, name="new"))
        record = writer.flush()
        assert record is not None
        assert writer.memtable.generation == 2
    manifest = _manifests(table).load(region_id)
    assert (manifest.replay_after_wal_id, manifest.wal_id_last_seen, manifest.current_generation) == (2, 2, 2)
    assert manifest.flushed_generations == (record,)
    assert (record.generation, record.physical_rows) == (1, 4)
    assert re.fullmatch(r"[0-9a-f]{8}_gen_1", record.path)
    assert _flushed_rows(table, region_id, record) == {1: "old", 2: "new", 3: "new"}
    data = f"{generation_path(region_id, record.path)}/data"
    for number in (1, 2):
        entry = wal_entry_path(region_id, number, ".lance")
        link = table.store.uri_of(f"{data}/{wal_entry_name(number, '.lance')}")
        assert Path(link).samefile(table.store.uri_of(entry))
        table.store.delete(entry)
    assert _flushed_rows(table, region_id, record) == {1: "old", 2: "new", 3: "new"}


@pytest.mark.req("FMT-20", "MRG-05")
def test_field_ids_with_gaps_survive_the_flush(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "gaps.lance"), settings=FAST, dropped_columns=("gone", "gone_too"))
    base_ids = {field.name(): field.id() for field in table.dataset().lance_schema.fields()}
    assert sorted(base_ids.values()) != list(range(len(base_ids)))
    region_id = _create_region(table)
    with _open(table, region_id) as writer:
        writer.put(people(1, 2, 1))
        record = writer.flush()
    opened = lance.dataset(table.store.uri_of(generation_path(region_id, record.path)))
    found = {field.name(): field.id() for field in opened.lance_schema.fields()}
    assert {name: found[name] for name in base_ids} == base_ids
    assert _flushed_rows(table, region_id, record) == {1: "p1", 2: "p2"}


@pytest.mark.req("FMT-20")
@pytest.mark.parametrize("status", RegionStatus)
@pytest.mark.parametrize("is_shared", [True, False])
def test_field_ids_inside_of_columns_survive_the_flush_whatever_was_added_and_dropped(
    tmp_path: Path, status: RegionStatus, is_shared: bool
) -> None:
    """No row could be written any more, and rows in the WAL were never flushed: "ids do not ascend"."""
    place = pa.field("place", pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.int64())])))]))
    schema = pa.schema([pa.field("id", pa.int64()), place, pa.field("last", pa.string())])
    settings = SHARING if is_shared else FAST
    table = Table.create(str(tmp_path / "t"), schema, key="id", settings=settings)
    lance.write_dataset(pa.table({"id": [9], "place": [None], "last": [None]}, schema=schema), table.uri, mode="append")
    base = lance.dataset(table.uri)
    base.add_columns(pa.schema([pa.field("place", pa.struct([("z", pa.int64())]))]))
    base.drop_columns(["place.x"])
    base.add_columns(pa.schema([pa.field("place", pa.struct([("l", pa.list_(pa.struct([("w", pa.int64())])))]))]))
    region_id = _create_region(table.base, status=status)
    place = {"l": [{"y": 1, "w": 2}, None], "z": 3}
    rows = [{"id": 1, "place": place, "last": "a"}, {"id": 2, "place": None, "last": "b"}]
    with _open(table.base, region_id) as writer:
        writer.put(pa.Table.from_pylist(rows, lance.dataset(table.uri).schema))
        record = writer.flush()

    assert record is not None
    flushed = lance.dataset(f"{table.uri}/{generation_path(region_id, record.path)}")
    found = column_ids(flushed.lance_schema.fields())
    assert found.pop("_tombstone") == (9,)
    assert found == column_ids(lance.dataset(table.uri).lance_schema.fields())
    assert found == {"id": (0,), "place": (1, 3, 4, 5, 8, 7), "last": (6,)}
    assert flushed.to_table(columns=["id", "place", "last"]).sort_by("id").to_pylist() == rows


@pytest.mark.req("WRT-72", "MEM-28", "MEM-30", "WRT-74", "MAN-25")
def test_reopening_after_flushes_replays_only_the_tail(table, region_id) -> None:
    writer = _open(table, region_id)
    for generation in (1, 2, 3):
        writer.put(people(generation))
        assert writer.flush().generation == generation
    writer.put(people(9))
    reopened = _open(table, region_id)
    assert _ids(reopened.memtable.to_table()) == [9]
    assert reopened.memtable.generation == 4


@pytest.mark.req("WRT-35")
def test_flushing_nothing_changes_nothing(table, region_id) -> None:
    with _open(table, region_id) as writer:
        before = _manifests(table).load(region_id)
        assert writer.flush() is None
        assert _manifests(table).load(region_id) == before


@pytest.mark.req("MEM-16", "MEM-19", "WRT-75")
def test_a_full_memtable_is_flushed_before_the_next_batch(table, region_id) -> None:
    limited = Settings(storage=FAST.storage, writer=WriterSettings(max_memtable_rows=3, background_flush=False))
    with _open(table.with_settings(limited), region_id) as writer:
        writer.put(people(1, 2, 3))
        assert writer.memtable.generation == 1
        writer.put(people(4))
        assert (writer.memtable.generation, writer.memtable.num_rows) == (2, 1)
        writer.put(people(*range(10)))
        assert (writer.memtable.generation, writer.memtable.num_rows) == (3, 10)


@pytest.mark.req("WRT-05", "WRT-06", "WRT-34", "WRT-63")
def test_undurable_puts_wait_in_memory_and_share_an_entry(table, region_id) -> None:
    buffered = Settings(storage=FAST.storage, writer=WriterSettings(durable_write=False, background_flush=False))
    writer = _open(table.with_settings(buffered), region_id)
    assert not writer.put(people(1)).durable
    writer.put(people(2, 3))
    assert _open(table, region_id).memtable.num_rows == 0
    writer = _open(table.with_settings(buffered), region_id)
    for batch in (people(1), people(2, 3), people(4)):
        writer.put(batch)
    assert writer.sync() == 1
    assert writer.memtable.wal_mapping() == {0: (1, 0), 1: (1, 1), 2: (1, 2)}
    assert _ids(LANCE_CODEC.read(table.store, region_id, 1).rows) == [1, 2, 3, 4]


def test_close_tells_of_rows_that_were_lost_when_a_thread_of_the_writer_found_it_fenced(table, region_id) -> None:
    """It ended well, and the rows were nowhere; or the next one did, as if they were somewhere by then."""
    buffered = Settings(storage=FAST.storage, writer=WriterSettings(durable_write=False, background_flush=False))
    writer = _open(table.with_settings(buffered), region_id)
    writer.put(people(1))
    _open(table, region_id).close()
    with pytest.raises(FencedError):
        writer._state.ownership._verify()  # As the thread that verifies ahead of time does, which tells nobody.

    with writer:
        for _ in range(2):
            with pytest.raises(FencedError):
                writer.close()


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 2), pa.struct([("x", pa.float32())])], ids=["vector", "struct"]
)
def test_arrays_that_are_filled_again_after_a_put_change_no_row(
    tmp_path: Path, kind: pa.DataType, is_durable: bool
) -> None:
    """Arrow refers to the memory of NumPy arrays, and flushes write small entries again from memory."""
    settings = FAST.model_copy(update={"writer": WriterSettings(durable_write=is_durable)})
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)])
    table = Table.create(str(tmp_path / "arrays.lance"), schema, key="id", settings=settings)
    keys, values = np.zeros(2, np.int64), np.zeros(4, np.float32)

    def rows(first: int) -> pa.Table:
        keys[:], values[:] = (first, first + 1), first
        shared = pa.array(values)
        nested = (
            pa.FixedSizeListArray.from_arrays(shared, type=kind)
            if pa.types.is_fixed_size_list(kind)
            else pa.StructArray.from_arrays([shared.slice(0, 2)], fields=list(kind))
        )
        return pa.Table.from_arrays([pa.array(keys), nested], schema=table.base.state().schema)

    expected = [row for first in (0, 2, 4) for row in rows(first).to_pylist() if row["id"] != 4]
    with table.writer() as writer:
        for first in (0, 2, 4):
            writer.put(rows(first))
        writer.delete(rows(4).select(["id"]).slice(0, 1))
        keys[:], values[:] = 0, 9
        writer.flush()

    assert table.to_arrow().sort_by("id").to_pylist() == expected


def test_a_slice_of_a_large_batch_does_not_keep_it_in_memory(table, region_id) -> None:
    with _open(table, region_id) as writer:
        large = people(*range(20_000), name="x" * 100)
        memory = pa.total_allocated_bytes()
        writer.put(large.slice(5, 1))
        of_batch, left = large.nbytes, pa.total_allocated_bytes
        del large

        assert left() < memory - 0.9 * of_batch


@pytest.mark.req("WRT-80", "WRT-81", "WRT-82", "WRT-83", "WRT-84", "WRT-85", "MAN-16", "WRT-15", "WRT-46")
def test_appendix_1_fencing_example(table) -> None:
    region_id = _create_region(table, writer_epoch=5, replay_after_wal_id=10, wal_id_last_seen=12)
    _write_entries(table, region_id, {11: 5, 12: 5})
    manifests = _manifests(table)
    a = _open(table, region_id)
    assert (manifests.load(region_id).version, a.writer_epoch) == (2, 6)
    assert [a.put(people(i)).wal_id for i in (13, 14, 15)] == [13, 14, 15]
    assert manifests.load(region_id).version == 2
    b = _open(table, region_id)
    assert (manifests.load(region_id).version, b.writer_epoch) == (3, 7)
    assert [b.put(people(i)).wal_id for i in (16, 17)] == [16, 17]
    with pytest.raises(FencedError):
        a.flush()
    assert manifests.load(region_id).version == 3
    recorder = FaultyStore(table.store)
    c = _open(reopened(table, recorder, FAST), region_id)
    assert _ids(c.memtable.to_table()) == [11, 12, 13, 14, 15, 16, 17]
    probes = [
        call.path for call in recorder.calls if call.operation in ("head", "get") and call.path.endswith(".lance")
    ]
    assert wal_entry_path(region_id, 18, ".lance") in probes
    assert wal_entry_path(region_id, 19, ".lance") in probes, "which tells that the missing 18 is no hole"
    assert wal_entry_path(region_id, 20, ".lance") not in probes
    assert c.put(people(18)).wal_id == 18
    assert c.flush() is not None


def _write_entries(table, region_id, epochs: dict[int, int]) -> None:
    schema = memtable_schema(PEOPLE, ["id"])
    for wal_id, epoch in epochs.items():
        appender = WalAppender(
            table.store,
            region_id,
            LANCE_CODEC,
            writer_epoch=epoch,
            last_wal_id=wal_id - 1,
            storage_version=table.state().data_storage_version,
            ids=IdSource(),
        )
        appender.append(with_tombstones(people(wal_id), schema, deleted=False))


@pytest.mark.req("WRT-42", "WRT-18", "D-12")
def test_a_late_entry_of_a_fenced_writer_is_replayed_and_stepped_over(table, region_id) -> None:
    a = _open(table, region_id)
    b = _open(table, region_id)
    assert a.put(people(1, name="late")).wal_id == 1
    assert b.put(people(1, name="newer")).wal_id == 2
    assert b.memtable.to_table(["name"]).column("name").to_pylist() == ["late", "newer"]
    assert _flushed_rows(table, region_id, b.flush()) == {1: "newer"}


@pytest.mark.req("WRT-42", "WRT-79", "WRT-85")
def test_an_occupied_position_of_a_higher_epoch_fences_without_further_requests(table, region_id) -> None:
    recorder = FaultyStore(table.store)
    a = _open(reopened(table, recorder, FAST), region_id)
    b = _open(table, region_id)
    b.put(people(2))
    with pytest.raises(FencedError) as caught:
        a.put(people(1))
    assert (caught.value.facts["own_epoch"], caught.value.facts["found_epoch"]) == (1, 2)
    before = len(recorder.calls)
    for call in (lambda: a.put(people(3)), a.sync, a.flush):
        with pytest.raises(FencedError):
            call()
    assert len(recorder.calls) == before


@pytest.mark.req("WRT-42")
@pytest.mark.parametrize(
    ("status", "suffix", "wal_id"),
    # A writer of the arrow codec takes the first position when it opens.
    [(RegionStatus.SEALED, ".lance", 1), (RegionStatus.ACTIVE, ".arrow", 2)],
)
def test_an_occupied_position_whose_entry_was_collected_meanwhile_fences(table, status, suffix, wal_id) -> None:
    """Its rows were merged by whoever has the region; the older writer took it for damage, and asked for a person."""
    region_id = IdSource().region_id()
    _publish(table, RegionManifest(region_id=region_id, status=status))
    path = wal_entry_path(region_id, wal_id, suffix)
    store = FaultyStore(table.store)
    a = _open(reopened(table, store, FAST), region_id)
    _open(table, region_id).put(people(2))
    store.add(Rule(lambda _: table.store.delete(path), Moment.BEFORE, frozenset({"get"}), path.__eq__))

    with pytest.raises(FencedError) as caught:
        a.put(people(1))

    assert caught.value.facts["wal_id"] == wal_id
    assert "collected" in caught.value.what


@pytest.mark.req("WRT-20")
def test_replay_meets_a_higher_epoch_and_abandons_the_claim(table) -> None:
    region_id = _create_region(table, writer_epoch=6)
    _write_entries(table, region_id, {1: 8})
    with pytest.raises(FencedError):
        _open(table, region_id)


@pytest.mark.req("MEM-41")
def test_a_hole_below_the_last_seen_entry_stops_recovery(table) -> None:
    region_id = _create_region(table, replay_after_wal_id=10, wal_id_last_seen=13)
    _write_entries(table, region_id, {11: 0, 12: 0, 13: 0})
    table.store.delete(wal_entry_path(region_id, 12, ".lance"))
    with pytest.raises(CorruptionError) as caught:
        _open(table, region_id)
    assert caught.value.facts["missing_wal_id"] == 12


@pytest.mark.req("MAN-24", "D-02")
def test_a_stale_hint_hides_no_entry(table) -> None:
    region_id = _create_region(table, replay_after_wal_id=10, wal_id_last_seen=12)
    _write_entries(table, region_id, dict.fromkeys(range(11, 18), 0))
    assert _ids(_open(table, region_id).memtable.to_table()) == list(range(11, 18))


@pytest.mark.req("WRT-33", "G-15", "WRT-39")
def test_a_lost_wal_write_says_unknown_and_its_rows_come_with_the_next(table, region_id) -> None:
    faulty = FaultyStore(table.store)
    writer = _open(reopened(table, faulty, FAST), region_id)
    faulty.fail("put_parts_if_absent", times=None)
    with pytest.raises(CommitUnknownError):
        writer.put(people(1))
    faulty.heal()
    writer.put(people(2))
    assert _ids(_open(table, region_id).memtable.to_table()) == [1, 2]


@pytest.mark.req("WRT-33", "WRT-41")
def test_a_wal_write_that_landed_without_reply_is_neither_lost_nor_doubled(table, region_id) -> None:
    faulty = FaultyStore(table.store)
    writer = _open(reopened(table, faulty, FAST), region_id)
    faulty.lose_reply("put_parts_if_absent", times=None)
    with pytest.raises(CommitUnknownError):
        writer.put(people(1, name="in doubt"))
    faulty.heal()
    writer.put(people(2))
    assert _flushed_rows(table, region_id, writer.flush()) == {1: "in doubt", 2: "p2"}


def test_attempts_without_a_reply_are_remembered_until_an_entry_is_written(table, region_id) -> None:
    """Each stayed in memory for the life of the writer."""
    store = FaultyStore(table.store)
    writer = _open(reopened(table, store, FAST), region_id)
    store.fail("put_parts_if_absent", times=2)
    store.lose_reply("put_parts_if_absent", nth=3)
    for _ in range(3):
        with pytest.raises(CommitUnknownError):
            writer.put(people(1))
    assert len(writer._wal._appender._in_doubt) == 3

    assert writer.put(people(1)).wal_id == 2

    assert not writer._wal._appender._in_doubt


@pytest.mark.req("WRT-42", "G-07")
def test_a_late_entry_met_by_a_failing_write_is_still_replayed_by_the_next(table, region_id) -> None:
    faulty = FaultyStore(table.store)
    late = _open(table, region_id)
    writer = _open(reopened(table, faulty, FAST), region_id)
    late.put(people(1, name="late"))
    faulty.fail("put_parts_if_absent", nth=2)
    with pytest.raises(CommitUnknownError):
        writer.put(people(2))
    writer.put(people(3))
    assert _ids(writer.memtable.to_table()) == [1, 2, 3]
    assert _flushed_rows(table, region_id, writer.flush()) == {1: "late", 2: "p2", 3: "p3"}


@pytest.mark.req("WRT-46", "WRT-79")
def test_a_writer_that_slept_through_its_replacement_does_not_acknowledge(table, region_id) -> None:
    clock = ManualClock()
    sleeper = _open(with_clock(table, clock), region_id)
    sleeper.put(people(1))
    successor = _open(table, region_id)
    successor.put(people(2))
    successor.flush()
    # WAL garbage collection of a later release would free these entries; without them the
    # sleeper's next position is empty again.
    for wal_id in (1, 2):
        table.store.delete(wal_entry_path(region_id, wal_id, ".lance"))
    clock.advance(FAST.writer.epoch_check_interval_s + 1)
    with pytest.raises(FencedError):
        sleeper.put(people(3))


@pytest.mark.req("WRT-46", "MAN-15")
def test_a_hundred_wal_writes_read_and_change_no_manifest(table, region_id) -> None:
    recorder = FaultyStore(table.store)
    writer = _open(with_clock(reopened(table, recorder, FAST), ManualClock()), region_id)
    before = len(recorder.calls)
    for i in range(100):
        writer.put(people(i))
    assert [call for call in recorder.calls[before:] if "/manifest/" in call.path] == []
    assert _manifests(table).load(region_id).version == 2


@pytest.mark.req("WRT-70", "WRT-71", "WRT-73")
def test_a_flush_that_loses_the_region_leaves_only_an_orphan(table, region_id) -> None:
    a = _open(table, region_id)
    a.put(people(1))
    claim(_manifests(table), region_id)
    with pytest.raises(FencedError):
        a.flush()
    assert _manifests(table).load(region_id).flushed_generations == ()
    successor = _open(table, region_id)
    record = successor.flush()
    assert _flushed_rows(table, region_id, record) == {1: "p1"}
    orphans = [name for name in table.store.list_directories(f"_mem_wal/{region_id}") if "_gen_" in name]
    assert len(orphans) == 2
    assert record.path in orphans


@pytest.mark.req("MAN-28", "MAN-29")
def test_a_foreign_manifest_version_of_the_same_epoch_does_not_stop_the_flush(table, region_id) -> None:
    writer = _open(table, region_id)
    writer.put(people(1))
    _manifests(table).update(
        region_id,
        lambda stored: raise_wal_hint(stored, 1),
    )
    assert writer.flush() is not None


@pytest.mark.req("WRT-16", "WRT-01")
def test_an_older_epoch_than_stored_cannot_flush_but_the_newer_can(table, region_id) -> None:
    a, b = _open(table, region_id), _open(table, region_id)
    assert (a.writer_epoch, b.writer_epoch) == (1, 2)
    b.put(people(1))
    assert b.flush() is not None
    with pytest.raises(FencedError):
        a.put(people(2))
    with pytest.raises(FencedError):
        a.flush()


@pytest.mark.req("G-09", "D-20")
def test_a_delete_is_a_durable_tombstone_with_null_values(table, region_id) -> None:
    writer = _open(table, region_id)
    writer.put(people(1, 2))
    assert writer.delete(pa.table({"id": [2, 3]})).wal_id == 2
    record = writer.flush()
    opened = lance.dataset(table.store.uri_of(generation_path(region_id, record.path))).to_table()
    assert opened.column("id").to_pylist() == [1, 2, 3]
    assert opened.column("_tombstone").to_pylist() == [False, True, True]
    assert opened.column("name").to_pylist() == ["p1", None, None]


@pytest.mark.req("G-09")
def test_a_put_after_a_delete_brings_the_key_back(table, region_id) -> None:
    writer = _open(table, region_id)
    writer.delete(pa.table({"id": [1]}))
    writer.put(people(1))
    assert _flushed_rows(table, region_id, writer.flush()) == {1: "p1"}


@pytest.mark.req("G-09")
def test_a_table_whose_values_may_not_be_null_refuses_deletes(tmp_path: Path) -> None:
    strict = PEOPLE.set(1, pa.field("name", pa.string(), nullable=False))
    table = make_people_table(str(tmp_path / "strict.lance"), rows=strict.empty_table(), settings=FAST)
    region_id = _create_region(table)
    with _open(table, region_id) as writer, pytest.raises(InvalidRequestError) as caught:
        writer.delete(pa.table({"id": [1]}))
    assert caught.value.facts == {"columns_not_nullable": ["name"]}


@pytest.mark.req("MAN-01", "IDX-03")
def test_a_writer_follows_the_manifest_whatever_the_snapshot_says(table, region_id) -> None:
    Table(OpenTable.of(with_clock(table, ManualClock()))).run(SnapshotRequest())
    first = _open(table, region_id)
    first.put(people(1))
    first.flush()
    snapshot = snapshot_manifests(read_snapshot(table, table.state()))
    assert [(stale.writer_epoch, stale.current_generation) for stale in snapshot] == [(0, 1)]
    second = _open(table, region_id)
    assert (second.writer_epoch, second.memtable.generation, second.memtable.num_rows) == (2, 2, 0)


@pytest.mark.req("WRT-68", "FMT-16")
def test_manifests_of_a_flushed_memtable_sort_the_newest_first(table, region_id) -> None:
    """Names of the second kind: the newest version is found without listing all of them."""
    with RegionWriter.open(table, region_id) as writer:
        writer.put(people(1, 2))
        flushed = writer.flush()

    versions = f"{generation_path(region_id, flushed.path)}/_versions"
    paths = [info.path for info in table.store.list_objects(versions)]
    names = [path.rpartition("/")[2] for path in paths if path.endswith(".manifest")]
    assert names
    assert all(len(name) == len(f"{2**64 - 1}.manifest") for name in names)
