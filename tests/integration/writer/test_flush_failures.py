"""A flush that fails at any call of Lance, before or after the call's effect, loses and doubles nothing."""

import errno
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    FencedError,
    InternalError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.failpoints import Failpoint
from memwal_core.flushed.write.directory import FLUSH_COMMIT, FLUSH_NUMBER
from memwal_core.flushed.write.files import FLUSH_HIDE, FLUSH_ROWS
from memwal_core.flushed.write.indexes import FLUSH_INDEX
from memwal_core.flushed.write.sidecars import FLUSH_KEYS
from memwal_core.format.paths import manifest_directory, region_directory, wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.region import FlushedGeneration, ManifestStore, RegionStatus, record_flush
from memwal_core.settings import Settings
from memwal_core.storage import open_store
from memwal_core.storage.translate import store_errors_translated
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from memwal_core.writer.claim.takeover import read_releases
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model
from testkit.tables.regions import create_region, flushed_rows, writer_settings

SETTINGS = writer_settings()
SHARING = writer_settings(pack_below_bytes=0)
CALLS = (FLUSH_COMMIT, FLUSH_NUMBER, FLUSH_INDEX, FLUSH_KEYS)
WAYS = {
    "shared": (RegionStatus.SEALED, SHARING, (*CALLS, FLUSH_HIDE)),
    "packed": (RegionStatus.SEALED, SETTINGS, (FLUSH_ROWS,)),
    "rewritten": (RegionStatus.ACTIVE, SETTINGS, (*CALLS, FLUSH_ROWS)),
}
EVERYWHERE = [
    pytest.param(status, settings, place, id=f"{way}-{place}")
    for way, (status, settings, calls) in WAYS.items()
    for call in calls
    for place in (call, call.done)
]


@pytest.fixture
def table(tmp_path: Path):
    """A maintained index and a gap in the field ids, so that a flush has to call Lance for both."""
    rows = people(9)
    dataset = lance.write_dataset(
        rows.add_column(1, pa.field("old", pa.int32()), [pa.nulls(rows.num_rows, pa.int32())]),
        str(tmp_path / "people.lance"),
    )
    dataset.drop_columns(["old"])
    dataset.create_scalar_index("score", "BTREE", name="score_idx")
    table = BaseTable.open(dataset.uri, settings=SETTINGS)
    table.create_mem_wal_index((), ["score_idx"])
    return table


@pytest.mark.req("MAN-27")
def test_complete_directory_that_no_manifest_records_is_read_and_merged_by_nobody(tmp_path: Path) -> None:
    uri, store = str(tmp_path / "t.lance"), FaultyStore(open_store(str(tmp_path / "t.lance")))
    region = create_region(make_people_table(uri))
    writer = RegionWriter.open(BaseTable.open(uri, store=store, settings=SETTINGS), region)
    writer.put(people(1, name="recorded"))
    writer.flush()
    store.fail("put_if_absent", path=lambda path: path.startswith(manifest_directory(region)), times=None)
    writer.put(people(2, name="stray"))
    with pytest.raises(CommitUnknownError):
        writer.flush()
    manifests = Table.open(uri).opened.manifests
    (recorded,) = manifests.load(region).flushed_generations
    found = set(store.list_directories(region_directory(region)))
    stray, *_ = sorted({name for name in found if "_gen_" in name} - {recorded.path})

    def seen() -> list[dict[int, str]]:
        shown = Table.open(uri).to_arrow(consistency=Consistency.LATEST)
        Table.open(uri).run(MergeRequest())
        return [as_model(shown), as_model(lance.dataset(uri).to_table())]

    assert seen() == [{1: "recorded"}] * 2
    manifests.update(region, lambda stored: record_flush(stored, FlushedGeneration(2, stray), 2, 2))
    assert seen() == [{1: "recorded", 2: "stray"}] * 2, "nothing else kept it from them"


@pytest.mark.req("MEM-22", "MEM-25", "WRT-01")
@pytest.mark.parametrize(("status", "settings", "place"), EVERYWHERE)
def test_a_flush_that_fails_anywhere_is_repeated_in_a_new_directory(
    table, status: RegionStatus, settings: Settings, place: Failpoint
) -> None:
    region = create_region(table, status)

    def fail() -> None:
        raise OSError("the object store did not answer")

    points = ArmedFailpoints().arm(place, fail)
    with RegionWriter.open(table.with_settings(settings), region, failpoints=points) as writer:
        writer.put(people(1, 2, name="first"))
        writer.put(people(2, 3, name="second"))
        writer.delete(pa.table({"id": [3]}))
        with pytest.raises(UnavailableError):
            writer.flush()
        assert writer.lookup(pa.table({"id": [1, 2]})).num_rows == 2
        record = writer.flush()

    assert points.hits[place] == 2
    assert record is not None
    assert flushed_rows(table, region, record) == {1: "first", 2: "second", 3: None}
    manifest = ManifestStore(table.store, IdSource()).load(region)
    assert [(each.generation, each.path) for each in manifest.flushed_generations] == [(1, record.path)]
    names = [name for name in table.store.list_directories(region_directory(region)) if name.endswith("_gen_1")]
    # Whatever the first attempt left behind is a directory of its own, which nobody refers to.
    assert record.path in names
    assert len(names) <= 2


@pytest.mark.req("MEM-25")
@pytest.mark.parametrize(("status", "settings", "place"), EVERYWHERE)
def test_a_writer_that_dies_in_a_flush_leaves_all_rows_to_its_successor(
    table, status: RegionStatus, settings: Settings, place: Failpoint
) -> None:
    region = create_region(table, status)
    points = ArmedFailpoints()
    writer = RegionWriter.open(table.with_settings(settings), region, failpoints=points)
    writer.put(people(1, 2, name="first"))
    writer.put(people(2, 3, name="second"))
    points.arm(place)
    with pytest.raises(SimulatedCrash):
        writer.flush()

    with RegionWriter.open(table, region) as successor:
        record = successor.flush()
    assert record is not None
    assert flushed_rows(table, region, record) == {1: "first", 2: "second", 3: "second"}


@pytest.mark.req("WRT-76", "GC-08")
def test_flush_of_wal_entries_that_a_newer_writer_flushed_and_that_were_collected_is_fenced(table) -> None:
    """It failed with an object that does not exist, and the writer, which had lost the region, went on."""
    region = create_region(table)
    zombie = RegionWriter.open(table.with_settings(SHARING), region)
    zombie.put(people(1, 2, name="first"))
    with RegionWriter.open(table.with_settings(SHARING), region) as successor:
        record = successor.flush()
    Path(table.store.uri_of(wal_entry_path(region, 1, ".lance"))).unlink()

    with pytest.raises(FencedError):
        zombie.flush()

    assert record is not None
    assert flushed_rows(table, region, record) == {1: "first", 2: "first"}
    with pytest.raises(FencedError):
        zombie.put(people(3))


@pytest.mark.req("WRT-78", "MEM-22")
def test_rows_written_after_a_rotation_are_replayed_when_only_the_rotated_memtable_was_flushed(table) -> None:
    """The replay pointer moves over the entries of the flushed MemTable, and not over those that follow."""
    region = create_region(table)
    writer = RegionWriter.open(table.with_settings(writer_settings(background_flush=False)), region)
    writer.put(people(1, name="flushed"))
    assert writer.rotate()
    writer.put(people(2, name="in the WAL"))
    assert writer._flushes.flush_next() is not None  # Crashes here.

    with RegionWriter.open(table, region) as successor:
        record = successor.flush()

    assert record is not None
    assert flushed_rows(table, region, record) == {2: "in the WAL"}


def require_flushed_once(writer: RegionWriter, table: BaseTable) -> None:
    record = writer.flush()

    manifest = ManifestStore(table.store, IdSource()).load(writer.region_id)
    assert record is not None
    assert [(each.generation, each.path) for each in manifest.flushed_generations] == [(1, record.path)]


@pytest.mark.req("MEM-25")
def test_flush_whose_record_got_no_reply_is_found_and_not_written_again(table) -> None:
    region = create_region(table)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    writer = RegionWriter.open(BaseTable(store, settings=SETTINGS), region)
    writer.put(people(1, 2))
    store.lose_reply("put_if_absent", path=lambda path: "/manifest/" in path, times=None)
    with pytest.raises(CommitUnknownError):
        writer.flush()
    store.heal()

    require_flushed_once(writer, table)


def test_flush_whose_record_got_no_reply_and_then_a_refusal_is_found(table) -> None:
    """It was forgotten: each later flush was refused, because its generation was recorded already."""
    region = create_region(table)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    writer = RegionWriter.open(BaseTable(store, settings=SETTINGS), region)
    writer.put(people(1, 2))

    def refuse(call: Call) -> None:
        raise StoreRefusedError("the store refused access", remedy="check credentials", path=call.path)

    store.lose_reply("put_if_absent")
    store.add(Rule(refuse, Moment.BEFORE, frozenset(["put_if_absent"]), nth=2, times=None))
    with pytest.raises(CommitUnknownError):
        writer.flush()
    store.heal()

    require_flushed_once(writer, table)


REFUSALS = [PermissionError(errno.EACCES, "denied"), OSError(errno.EROFS, "read-only")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_a_flush_that_the_store_refuses_is_tried_again_by_the_background_scheduler(table, refusal: OSError) -> None:
    """One refused request, for example while credentials were replaced, ended the writer for good."""
    region = create_region(table)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    settings = writer_settings(max_memtable_rows=1)
    with RegionWriter.open(BaseTable(store, settings=settings), region) as writer:

        def refuse(call: Call) -> None:
            with store_errors_translated(call.operation, call.path, store.uri):
                raise refusal

        store.add(Rule(refuse, Moment.BEFORE, frozenset(["put_if_absent"]), lambda path: "/manifest/" in path, times=2))
        writer.put(people(1))

        assert writer.put(people(2)).durable, "it raised although the rows were taken"
        assert writer._scheduler._flush_round() == settings.writer.flush_retry_wait_s
        assert writer.put(people(3)).durable
        assert writer._scheduler._flush_round() != settings.writer.flush_retry_wait_s

    manifest = ManifestStore(table.store, IdSource()).load(region)
    assert [each.generation for each in manifest.flushed_generations] == [1, 2]


def test_a_writer_that_an_error_ended_releases_its_region_when_it_is_closed(table) -> None:
    """Nobody could write the region for as long as a crashed writer seems alive."""
    region = create_region(table)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    writer = RegionWriter.open(BaseTable(store, settings=SETTINGS), region)

    def break_down(call: Call) -> None:
        raise InternalError("impossible", remedy="report it", path=call.path)

    writer.put(people(1))
    writer.rotate()
    store.add(Rule(break_down, Moment.BEFORE, frozenset(["put_if_absent"])))
    writer._scheduler._flush_round()
    with pytest.raises(InternalError):
        writer.put(people(2))

    writer.close()

    assert read_releases(table.store, region).newest == writer.writer_epoch


def test_a_writer_that_a_conflict_ended_releases_its_region_when_it_is_closed(table) -> None:
    """Conflicts of a flush pass; one that ends the writer kept its region, and its threads went on."""
    region = create_region(table)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    writer = RegionWriter.open(BaseTable(store, settings=writer_settings(durable_write=False)), region)

    def conflict(call: Call) -> None:
        raise ConflictError("a fenced predecessor wrote late", remedy="open the region again", path=call.path)

    writer.put(people(1))
    store.add(Rule(conflict, Moment.BEFORE, frozenset(["put_if_absent", "put_parts_if_absent"]), times=1))
    with pytest.raises(ConflictError):
        writer.close()

    assert read_releases(table.store, region).newest == writer.writer_epoch
    with pytest.raises(ConflictError):
        writer.close()
