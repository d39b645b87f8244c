"""The base table's schema changes while regions hold rows of the old one."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.ids import IdSource
from memwal_core.manifest import ManifestStore, RegionStatus
from memwal_core.storage import open_store
from memwal_core.testing.clock import ManualClock
from memwal_core.testing.faulty_store import FaultyStore, Moment, Rule
from memwal_core.testing.native_regions import native_scan
from memwal_core.testing.regions import create_region, writer_settings
from memwal_core.testing.tables import make_people_table, people, reopened
from memwal_core.writer import RegionWriter, TableWriter

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
    with TableWriter.open(table, settings=SETTINGS, clock=ManualClock()) as writer:
        writer.put(people(1, 2))
        with pytest.raises(InvalidRequestError):
            writer.put(_people_with_city(3))
        lance.dataset(table.uri).add_columns(NEW)
        writer.put(_people_with_city(2, 3))
        writer.flush()
    assert _shown(table, ["id", "city"]) == {"id": [1, 2, 3], "city": [None, "c2", "c3"]}


def test_a_dropped_column_is_noticed_when_the_interval_is_over(table) -> None:
    clock = ManualClock()
    with TableWriter.open(table, settings=SETTINGS, clock=clock) as writer:
        writer.put(people(1))
        lance.dataset(table.uri).drop_columns(["score"])
        clock.advance(11)
        with pytest.raises(InvalidRequestError):
            writer.put(people(2))
        writer.put(people(2).drop_columns(["score"]))
        writer.flush()
    assert _shown(table, ["id", "name"]) == {"id": [1, 2], "name": ["p1", "p2"]}


def test_rows_of_a_crashed_writer_survive_a_schema_change_before_the_next(table) -> None:
    crashed = TableWriter.open(table, settings=SETTINGS)
    crashed.put(people(1, 2))
    lance.dataset(table.uri).add_columns(NEW)
    with TableWriter.open(table, settings=SETTINGS, takeover="fence") as writer:
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
    old = RegionWriter.open(table, region, settings=SETTINGS)
    old.put(people(1, 2, name="first"))
    old.flush()
    lance.dataset(table.uri).add_columns(NEW)
    store = FaultyStore(open_store(table.uri, settings=SETTINGS.storage))
    late = Rule(lambda _: old.put(people(2, name="late")), Moment.BEFORE, frozenset({"put_file_if_absent"}))
    store.add(late)
    with pytest.raises(ConflictError, match="late"):
        RegionWriter.open(reopened(table, store), region, settings=SETTINGS).put(_people_with_city(3))
    with RegionWriter.open(table, region, settings=SETTINGS) as writer:
        writer.put(_people_with_city(3, 4))
        writer.flush()

    assert late.matched > 0
    assert _shown(table, ["id", "name", "city"]) == {
        "id": [1, 2, 3, 4],
        "name": ["first", "late", "p3", "p4"],
        "city": [None, None, "c3", "c4"],
    }
