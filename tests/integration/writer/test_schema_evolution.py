"""The base table's schema changes while regions hold rows of the old one."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.format.paths import WRITERS_DIRECTORY
from memwal_core.ids import IdSource
from memwal_core.memtable import with_tombstones
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.settings import Settings, WriterSettings
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.wal import WalAppender, codec_of_region
from memwal_core.wal.lance_codec import LanceCodec
from memwal_core.writer import RegionWriter, TableWriter
from memwal_core.writer.layout import TableLayout
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.native_regions import native_scan
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.regions import blocking, create_region, writer_settings

SETTINGS = writer_settings(schema_check_interval_s=10)
NEW = pa.field("city", pa.string())


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS, buckets=1)


def _people_with_city(*ids: int) -> pa.Table:
    return people(*ids).append_column(NEW, pa.array([f"c{i}" for i in ids]))


def _shown(table, columns) -> dict[str, list]:
    manifests = ManifestStore(table.store, IdSource())
    regions = manifests.load_many(manifests.region_ids())
    return native_scan(table.uri, regions, columns, "id").to_pydict()


@pytest.mark.req("IDX-04", "WRT-27")
def test_a_batch_with_a_new_column_makes_the_writer_look_again(table) -> None:
    with TableWriter.open(with_clock(table, ManualClock())) as writer:
        writer.put(people(1, 2))
        with pytest.raises(InvalidRequestError):
            writer.put(_people_with_city(3))
        lance.dataset(table.uri).add_columns(NEW)
        writer.put(_people_with_city(2, 3))
        writer.flush()
    assert _shown(table, ["id", "city"]) == {"id": [1, 2, 3], "city": [None, "c2", "c3"]}


def test_a_flush_keeps_its_regions_open_while_a_put_follows_the_schema(table) -> None:
    """It ended with "the writer is closed" although nobody had closed it."""
    store = FaultyStore(table.store)
    with TableWriter.open(reopened(table, store, SETTINGS)) as writer, ThreadPoolExecutor(2) as pool:
        writer.put(people(1, 2))
        lance.dataset(table.uri).add_columns(NEW)
        with blocking(store, "put", path=lambda path: path.startswith(WRITERS_DIRECTORY)) as blocked:
            put = pool.submit(writer.put, _people_with_city(3))  # It gives the region up in its old schema.
            assert blocked.reached.wait(60)
            flush = pool.submit(writer.flush)
            wait([flush], timeout=0.2)
            blocked.release.set()
            assert put.result(60).rows == 1
            flush.result(60)
        writer.flush()
    assert _shown(table, ["id", "city"]) == {"id": [1, 2, 3], "city": [None, None, "c3"]}


def test_a_delete_that_the_old_schema_refuses_makes_the_writer_look_again(tmp_path: Path) -> None:
    """The error says to make the column nullable; then the delete went on failing until the interval was over."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    table = Table.create(str(tmp_path / "strict.lance"), schema, key="id")
    with TableWriter.open(with_clock(table.base.with_settings(SETTINGS), ManualClock())) as writer:
        writer.put(pa.table({"id": [1, 2], "name": ["a", "b"]}))
        with pytest.raises(InvalidRequestError, match="cannot be deleted"):
            writer.delete(pa.table({"id": [1]}))
        lance.dataset(table.uri).alter_columns({"path": "name", "nullable": True})
        assert writer.delete(pa.table({"id": [1]})).rows == 1
        writer.flush()
    assert Table.open(table.uri).to_arrow().column("id").to_pylist() == [2]


def test_a_dropped_column_is_noticed_when_the_interval_is_over(table) -> None:
    clock = ManualClock()
    with TableWriter.open(with_clock(table, clock)) as writer:
        writer.put(people(1))
        lance.dataset(table.uri).drop_columns(["score"])
        clock.advance(11)
        with pytest.raises(InvalidRequestError):
            writer.put(people(2))
        writer.put(people(2).drop_columns(["score"]))
        writer.flush()
    assert _shown(table, ["id", "name"]) == {"id": [1, 2], "name": ["p1", "p2"]}


def test_rows_of_a_crashed_writer_survive_a_schema_change_before_the_next(table) -> None:
    crashed = TableWriter.open(table)
    crashed.put(people(1, 2))
    lance.dataset(table.uri).add_columns(NEW)
    with TableWriter.open(table, takeover="fence") as writer:
        writer.put(_people_with_city(2, 3))
        writer.flush()
    assert _shown(table, ["id", "name", "city"]) == {
        "id": [1, 2, 3],
        "name": ["p1", "p2", "p3"],
        "city": [None, "c2", "c3"],
    }


@pytest.mark.req("WRT-42", "IDX-04")
@pytest.mark.parametrize("status", RegionStatus)
def test_a_late_entry_of_an_older_schema_is_flushed_by_the_next_opening(table, status: RegionStatus) -> None:
    """Found by the simulation: the tail then holds rows of two schemas, and no writer could open the region."""
    region = create_region(table, status)
    old = RegionWriter.open(table, region)
    old.put(people(1, 2, name="first"))
    old.flush()
    lance.dataset(table.uri).add_columns(NEW)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    late = Rule(lambda _: old.put(people(2, name="late")), Moment.BEFORE, frozenset({"put_parts_if_absent"}))
    store.add(late)
    with pytest.raises(ConflictError, match="late"):
        RegionWriter.open(reopened(table, store, SETTINGS), region).put(_people_with_city(3))
    with RegionWriter.open(table, region) as writer:
        writer.put(_people_with_city(3, 4))
        writer.flush()

    assert late.matched > 0
    assert _shown(table, ["id", "name", "city"]) == {
        "id": [1, 2, 3, 4],
        "name": ["first", "late", "p3", "p4"],
        "city": [None, None, "c3", "c4"],
    }


@pytest.mark.req("WRT-42", "IDX-04")
def test_a_tail_of_two_schemas_that_another_client_left_is_flushed_schema_by_schema(table) -> None:
    """A fence after the first schema would meet the entries of the second, and no writer could open the region."""
    region = create_region(table, RegionStatus.ACTIVE)
    crashed = RegionWriter.open(table, region)
    crashed.put(people(1, 2))
    lance.dataset(table.uri).add_columns(NEW)
    state = table.state()
    codec = codec_of_region(ManifestStore(table.store, IdSource()).load(region), state.column_ids)
    other_client = WalAppender(
        table.store,
        region,
        codec,
        writer_epoch=crashed.writer_epoch,
        last_wal_id=crashed.stats().last_wal_id,
        storage_version="2.0",
        ids=IdSource(),
    )
    schema = TableLayout.of(state).memtable_schema
    other_client.append(with_tombstones(_people_with_city(2, 3), schema, deleted=False), 1)

    with RegionWriter.open(table, region) as writer:
        writer.put(_people_with_city(4))
        writer.flush()

    assert _shown(table, ["id", "city"]) == {"id": [1, 2, 3, 4], "city": [None, "c2", "c3", "c4"]}


def _forget_all_versions_but_the_newest(table) -> None:
    lance.dataset(table.uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert len(lance.dataset(table.uri).versions()) == 1


@pytest.mark.req("WRT-27", "IDX-04")
@pytest.mark.parametrize("status", RegionStatus)
def test_rows_of_a_schema_that_no_version_has_any_more_are_flushed_by_their_field_ids(
    table, status: RegionStatus
) -> None:
    """The region could not be opened any more, so its acknowledged rows were out of reach."""
    region = create_region(table, status)
    RegionWriter.open(table, region).put(people(1, 2))  # Crashes here.
    lance.dataset(table.uri).add_columns(NEW)
    lance.dataset(table.uri).drop_columns(["score"])
    lance.dataset(table.uri).alter_columns({"path": "name", "name": "title"})
    _forget_all_versions_but_the_newest(table)

    with RegionWriter.open(table, region) as writer:
        writer.put(pa.table({"id": [2, 3], "title": ["t2", "t3"], "city": ["c2", "c3"]}))
        writer.flush()

    assert _shown(table, ["id", "title", "city"]) == {
        "id": [1, 2, 3],
        "title": ["p1", "t2", "t3"],
        "city": [None, "c2", "c3"],
    }


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize("status", RegionStatus)
def test_values_of_a_dropped_column_do_not_come_back_in_a_new_one_of_its_name(
    tmp_path: Path, status: RegionStatus
) -> None:
    """Rows in the WAL were matched by name and type alone, so a writer replayed old values into the new column."""
    uri = str(tmp_path / "people.lance")
    table = make_people_table(uri, rows=people(9), settings=SETTINGS, buckets=1)
    region = create_region(table, status)
    RegionWriter.open(table, region).put(people(1))  # Crashes here.
    lance.dataset(uri).drop_columns(["score"])
    lance.dataset(uri).add_columns(pa.field("score", pa.float64()))

    with RegionWriter.open(table, region) as writer:
        writer.put(people(2))
        writer.flush()

    assert _shown(table, ["id", "score"]) == {"id": [1, 2, 9], "score": [None, 2.0, None]}


@pytest.mark.req("WRT-27")
def test_rows_without_field_ids_and_without_a_version_are_refused_with_the_way_out(
    table, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = create_region(table)
    with monkeypatch.context() as patch:
        patch.setattr(LanceCodec, "_noted_ids", lambda self, schema: {})  # As entries were before they named ids.
        RegionWriter.open(table, region).put(people(1, 2))
    lance.dataset(table.uri).drop_columns(["score"])
    _forget_all_versions_but_the_newest(table)
    with pytest.raises(InvalidRequestError, match="add these columns to the table again"):
        RegionWriter.open(table, region)

    lance.dataset(table.uri).add_columns(pa.field("score", pa.float64()))  # What the error tells to do.
    with RegionWriter.open(table, region) as writer:
        assert writer.flush() is not None
    lance.dataset(table.uri).drop_columns(["score"])
    assert _shown(table, ["id", "name"]) == {"id": [1, 2], "name": ["p1", "p2"]}


@pytest.mark.req("WRT-42")
@pytest.mark.parametrize("status", RegionStatus)
def test_a_late_entry_of_a_dropped_column_does_not_fill_the_new_one_of_its_name(
    tmp_path: Path, status: RegionStatus
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(9), settings=SETTINGS, buckets=1)
    region = create_region(table, status)
    old = RegionWriter.open(table, region)
    old.put(people(1))
    old.flush()
    lance.dataset(table.uri).drop_columns(["score"])
    lance.dataset(table.uri).add_columns(pa.field("score", pa.float64()))
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    store.add(Rule(lambda _: old.put(people(2)), Moment.BEFORE, frozenset({"put_parts_if_absent"})))
    with pytest.raises(ConflictError, match="late"):
        RegionWriter.open(reopened(table, store, SETTINGS), region).put(people(3))
    with RegionWriter.open(table, region) as writer:
        writer.put(people(3))
        writer.flush()

    assert _shown(table, ["id", "score"]) == {"id": [1, 2, 3, 9], "score": [None, None, 3.0, None]}


@pytest.mark.req("SPEC-12")
def test_rows_are_refused_once_the_column_that_decided_their_region_was_dropped(tmp_path: Path) -> None:
    """They went to the region of NULL while older rows of their keys waited elsewhere: scans showed a key twice."""
    schema = pa.schema([("id", pa.int64()), ("tenant", pa.string()), ("name", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, key=["id", "tenant"], regions=["tenant"])
    new = pa.table({"id": [1, 3], "name": ["new", "new"]})
    open_writer = table.writer()
    open_writer.put(pa.table({"id": [1, 2], "tenant": ["a", "b"], "name": ["old", "old"]}))
    lance.dataset(table.uri).drop_columns(["tenant"])

    for write in (lambda: open_writer.put(new), lambda: Table.open(table.uri).writer(takeover="fence").put(new)):
        with pytest.raises(InvalidRequestError, match="columns that were dropped") as refused:
            write()
    open_writer.close()
    assert "add-spec" in str(refused.value)
    table.checkpoint(fence=True)
    table.configuration.divide(["bucket(id, 2)"])  # What the error tells to do.
    with table.writer(spec_id=2) as writer:
        writer.put(new)
        writer.flush()
    table.checkpoint()

    rows = lance.dataset(table.uri).to_table().sort_by("id")
    assert rows.select(["id", "name"]).to_pydict() == {"id": [1, 2, 3], "name": ["new", "old", "new"]}


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
@pytest.mark.parametrize("is_proven", [True, False], ids=["version kept", "version removed"])
def test_rows_from_before_a_column_was_dropped_from_the_key_are_flushed(
    tmp_path: Path, codec: str, is_proven: bool
) -> None:
    """Where other columns than those of the present key were NOT NULL, the region could never be flushed again."""
    settings = Settings(writer=WriterSettings(new_region_codec=codec))
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("name", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, key=["tenant", "id"], settings=settings)
    table.writer().put(pa.table({"tenant": ["a", "b"], "id": [1, 2], "name": ["one", "two"]}))  # Crashes here.
    lance.dataset(table.uri).drop_columns(["tenant"])
    if not is_proven:
        _forget_all_versions_but_the_newest(table.base)

    Table.open(table.uri).checkpoint(fence=True)

    rows = lance.dataset(table.uri).to_table().sort_by("id")
    assert rows.to_pydict() == {"id": [1, 2], "name": ["one", "two"]}


PLACES = pa.schema([("id", pa.int64()), ("place", pa.struct([("city", pa.string()), ("code", pa.int64())]))])


def _places(code: int, *ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "place": [{"city": "here", "code": code}] * len(ids)}, schema=PLACES)


def _make_code_anew(uri: str) -> None:
    lance.dataset(uri).drop_columns(["place.code"])
    lance.dataset(uri).add_columns(pa.schema([pa.field("place", pa.struct([("code", pa.int64())]))]))
    assert lance.dataset(uri).schema.field("place").type == PLACES.field("place").type


@pytest.mark.req("WRT-27")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
def test_a_field_inside_of_a_column_made_anew_is_noticed_although_names_and_types_are_the_same(
    tmp_path: Path, codec: str
) -> None:
    """Values that were put into the new field would belong to the dropped one."""
    clock, settings = ManualClock(), writer_settings(schema_check_interval_s=10, new_region_codec=codec)
    table = Table.create(str(tmp_path / "t"), PLACES, key="id", settings=settings)
    lance.write_dataset(_places(9, 9), table.uri, mode="append")
    with TableWriter.open(with_clock(table.base, clock)) as writer:
        writer.put(_places(1, 1, 2))
        _make_code_anew(table.uri)
        clock.advance(11)
        writer.put(_places(5, 2, 3))
        writer.flush()
    table.checkpoint()

    rows = lance.dataset(table.uri).to_table().sort_by("id").to_pylist()
    assert {row["id"]: row["place"]["code"] for row in rows} == {1: None, 2: 5, 3: 5, 9: None}


@pytest.mark.req("WRT-27", "IDX-04")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
@pytest.mark.parametrize("is_proven", [True, False], ids=["version kept", "version removed"])
def test_unflushed_values_of_a_dropped_field_inside_do_not_come_back_in_a_new_one_of_its_name(
    tmp_path: Path, codec: str, is_proven: bool
) -> None:
    """Entries named the ids of whole columns only, and columns were matched by name and type."""
    settings = writer_settings(new_region_codec=codec)
    table = Table.create(str(tmp_path / "t"), PLACES, key="id", settings=settings)
    lance.write_dataset(_places(9, 9), table.uri, mode="append")
    TableWriter.open(table.base).put(_places(77, 1, 2))  # Crashes here.
    _make_code_anew(table.uri)
    if not is_proven:
        _forget_all_versions_but_the_newest(table.base)
    with TableWriter.open(table.base, takeover="fence") as writer:
        writer.put(_places(5, 2, 3))
        writer.flush()
    table.checkpoint()

    rows = lance.dataset(table.uri).to_table().sort_by("id").to_pylist()
    assert {row["id"]: row["place"]["code"] for row in rows} == {1: None, 2: 5, 3: 5, 9: None}
