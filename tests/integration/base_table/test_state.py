"""What a version of a real table is read as."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, PrimaryKey, list_versions, remove_versions
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.format.memwal_index.configure import with_region_spec
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import PEOPLE, PRIMARY_KEY_METADATA, make_people_table, people

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))


def mark_natively(uri: str, rows: pa.Table, marks: dict[RegionId, int]) -> None:
    """Merge rows and progress with pylance alone."""
    marked = [lance.mem_wal.CompactedSsTable(str(region), generation) for region, generation in marks.items()]
    builder = lance.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.use_index(False).mark_sstables_as_compacted(marked).execute(rows)


@pytest.mark.req("MRG-06", "FMT-38", "FMT-40", "IDX-26")
def test_progress_that_pylance_recorded_is_read_exactly(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(1, 2), uri).initialize_mem_wal(bucket_column="id", num_buckets=4)
    mark_natively(uri, people(2, 3), {A: 3, B: 1})
    mark_natively(uri, people(4), {B: 20})
    table = BaseTable.open(uri)

    assert table.state().require_details().merged_generations == {A: 3, B: 20}
    assert table.state(3).require_details().merged_generations == {A: 3, B: 1}
    assert table.state(2).require_details().merged_generations == {}
    assert [table.state(version).num_rows for version in (2, 3, 4)] == [2, 3, 4]


@pytest.mark.req("FMT-41", "IDX-30")
def test_catchup_that_pylance_recorded_is_read_exactly(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(1, 2), uri).initialize_mem_wal(unsharded=True)
    lance.dataset(uri).create_scalar_index("name", "BTREE", name="name_idx")
    lance.dataset(uri).create_scalar_index("score", "BTREE", name="score_idx")
    mark_natively(uri, people(2, 3), {A: 3, B: 1})
    lance.dataset(uri).optimize.optimize_indices(index_names=["name_idx"])
    mark_natively(uri, people(5), {A: 4})

    catchup = BaseTable.open(uri).state().require_details().index_catchup

    assert catchup["name_idx"] == {A: 3, B: 1}
    assert "score_idx" not in catchup or catchup["score_idx"] == {}


@pytest.mark.req("FMT-36", "FMT-42")
def test_spec_that_pylance_wrote_is_read_exactly(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(1), uri).initialize_mem_wal(bucket_column="id", num_buckets=4)

    details = BaseTable.open(uri).state().require_details()

    field = RegionField("bucket", (0,), "bucket", None, "int32", {"num_buckets": "4"})
    assert details.region_specs == (RegionSpec(1, (field,)),)


def test_state_tells_schema_ids_key_format_and_time(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), dropped_columns=["gone"])

    state = table.state()

    assert state.schema == PEOPLE
    assert state.field_ids == {"id": 0, "name": 2, "score": 3}
    assert state.primary_key == PrimaryKey(("id",), (0,))
    assert state.data_storage_version == table.dataset().data_storage_version
    assert abs((datetime.now(UTC) - state.timestamp).total_seconds()) < 600
    assert (table.uri, dict(table.storage_options)) == (str(tmp_path / "t"), {})


def test_large_manifest_is_downloaded_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    store = FaultyStore(make_people_table(uri, rows=people(1)).store)
    table = BaseTable.open(uri, store=store)
    table.state()
    first = store.count("get", "get_range")

    again = table.state()

    assert first == 1
    assert store.count("get", "get_range") == first
    assert again.details is not None


@pytest.mark.parametrize("cleaned_up", [False, True])
def test_first_state_is_the_newest_even_if_others_committed_since_the_table_was_opened(
    place: Any, cleaned_up: bool
) -> None:
    table = make_people_table(place.uri, storage_options=place.storage_options)
    opened = BaseTable.open(place.uri, storage_options=place.storage_options)

    spec = RegionSpec(9, ())
    after = table.update_details(lambda details: with_region_spec(details, spec))
    if cleaned_up:
        remove_versions(table, [version.version for version in list_versions(table)[:-1]])

    state = opened.state()
    assert state.version == after.version
    assert spec in state.require_details().region_specs


def test_first_state_is_of_the_table_that_took_the_place_of_the_opened_one(place: Any) -> None:
    """Both have as many versions."""
    make_people_table(place.uri, rows=people(1), storage_options=place.storage_options)
    opened = BaseTable.open(place.uri, storage_options=place.storage_options)

    for each in list(opened.store.list_objects("")):
        opened.store.delete(each.path)
    made = make_people_table(place.uri, rows=people(2, 3), storage_options=place.storage_options).state()

    state = opened.state()
    assert (state.version, state.timestamp, state.num_rows) == (made.version, made.timestamp, 2)
    assert sorted(opened.dataset(state.version).to_table().column("id").to_pylist()) == [2, 3]


def test_version_that_was_read_stays_what_it_is_when_others_read_the_newest_one_first(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    opened = BaseTable.open(table.uri)
    one, other = opened.observed(lambda state: None), opened.observed(lambda state: None)

    before = one.state()
    merge_natively(table, people(2))
    after = other.state()

    assert (before.num_rows, after.num_rows) == (1, 2)
    assert one.dataset(before.version).count_rows() == before.opened.count_rows() == 1


def test_table_of_old_manifest_naming_is_read_and_changed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(people(1), uri, enable_v2_manifest_paths=False)
    assert (tmp_path / "t" / "_versions" / "1.manifest").exists()

    state = BaseTable.open(uri).create_mem_wal_index()

    assert state.version == 2
    assert sorted(path.name for path in (tmp_path / "t" / "_versions").glob("*.manifest*")) == [
        "1.manifest",
        "2.manifest",
    ]
    assert lance.dataset(uri).version == 2


def test_address_without_table_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        BaseTable.open(str(tmp_path / "nothing"))


def test_version_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        make_people_table(str(tmp_path / "t")).state(99)


@pytest.mark.req("FMT-48")
def test_table_without_primary_key_is_refused_and_one_with_it_accepted(tmp_path: Path) -> None:
    """Bug classes 8 and 9: without a key, merges duplicate or drop rows."""
    keyless = pa.schema([field.remove_metadata() for field in PEOPLE])
    lance.write_dataset(people(1).cast(keyless), str(tmp_path / "keyless"))
    table = BaseTable.open(str(tmp_path / "keyless"))

    with pytest.raises(InvalidRequestError, match="defines no primary key"):
        table.require_writable()
    with pytest.raises(InvalidRequestError, match="defines no primary key"):
        table.create_mem_wal_index()
    with pytest.raises(InvalidRequestError, match="primary key"):
        merge_natively(table, people(2))
    assert table.state().version == 1
    assert make_people_table(str(tmp_path / "keyed")).require_writable().region_specs


def test_key_of_unsupported_type_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("day", pa.date32(), nullable=False, metadata=PRIMARY_KEY_METADATA)])
    lance.write_dataset(pa.table({"day": pa.array([1], pa.date32())}, schema=schema), str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="cannot be a primary key"):
        BaseTable.open(str(tmp_path / "t")).create_mem_wal_index()


@pytest.mark.req("FMT-48")
def test_lance_itself_refuses_a_nullable_key(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=True, metadata=PRIMARY_KEY_METADATA)])

    with pytest.raises(OSError, match="must not be nullable"):
        lance.write_dataset(pa.table({"id": [1]}, schema=schema), str(tmp_path / "t"))


def test_table_without_mem_wal_index_is_refused_for_regions(tmp_path: Path) -> None:
    lance.write_dataset(people(1), str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="no MemWAL index") as caught:
        BaseTable.open(str(tmp_path / "t")).require_writable()

    assert "frozen" not in caught.value.facts


def test_index_gone_while_regions_exist_freezes_the_table(tmp_path: Path) -> None:
    """Bug classes 31 and 44: an overwrite drops progress; going on would merge old generations again."""
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(1))
    table.store.put_if_absent(f"_mem_wal/{A}/manifest/some.binpb", b"manifest")
    lance.write_dataset(people(9), uri, mode="overwrite")

    for attempt in (table.require_writable, table.require_mem_wal, table.create_mem_wal_index):
        with pytest.raises(InvalidRequestError, match="frozen") as caught:
            attempt()
        assert caught.value.facts["frozen"] is True
    assert table.state().version == 3


def test_leases_beside_regions_do_not_freeze_a_table(tmp_path: Path) -> None:
    lance.write_dataset(people(1), str(tmp_path / "t"))
    table = BaseTable.open(str(tmp_path / "t"))
    table.store.put_if_absent("_mem_wal/_leases/merge/1.json", b"lease")

    assert table.create_mem_wal_index().details is not None
