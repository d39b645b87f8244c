"""Flushed MemTables after their table was copied, moved, swapped or restored (S1): own rows, or a refusal."""

import shutil
import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import DamagedError
from memwal_core.flushed.read import check_contents, open_generation, opening
from memwal_core.flushed.write import rebase_flushed
from memwal_core.format.paths import generation_path, wal_directory, wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.storage import ObjectStore, open_store
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.s3_server import S3Server
from testkit.tables.native_regions import native_scan
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import create_region, writer_settings

SHARING = writer_settings(pack_below_bytes=0)


class Place:
    """A store in which tables are made, copied and moved under names."""

    def __init__(self, root: str, storage_options: dict[str, str], *, has_links: bool) -> None:
        self.options = storage_options
        self.root = root
        self.has_links = has_links

    def table(self, name: str) -> BaseTable:
        table = BaseTable.open(f"{self.root}/{name}", storage_options=self.options, settings=SHARING)
        return reopened(table, self._store(table.store))

    def _store(self, inner: ObjectStore) -> ObjectStore:
        store = FaultyStore(inner)
        store.has_links = self.has_links
        return store

    def make(self, name: str) -> None:
        make_people_table(f"{self.root}/{name}", storage_options=self.options, settings=SHARING)

    def copy(self, name: str, other: str) -> None:
        if not self.options:
            shutil.copytree(f"{self.root}/{name}", f"{self.root}/{other}")
            return
        store = open_store(self.root, storage_options=self.options)
        for info in list(store.list_objects(name)):
            store.put(f"{other}{info.path.removeprefix(name)}", store.get(info.path))

    def remove(self, name: str) -> None:
        open_store(self.root, storage_options=self.options).delete_directory(name)

    def move(self, name: str, other: str) -> None:
        if not self.options:
            Path(f"{self.root}/{name}").rename(f"{self.root}/{other}")
            return
        self.copy(name, other)
        self.remove(name)


@pytest.fixture(params=["links", "no links", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return Place(server.uri(f"bucket/{uuid.uuid4()}"), dict(server.storage_options), has_links=True)
    return Place(str(tmp_path), {}, has_links=request.param == "links")


def write(table: BaseTable, region_id: RegionId, *puts: pa.Table) -> None:
    with RegionWriter.open(table.with_settings(SHARING), region_id) as writer:
        for rows in puts:
            writer.put(rows)
        writer.flush()


def manifest(table: BaseTable, region_id: RegionId) -> RegionManifest:
    return ManifestStore(table.store, IdSource()).load(region_id)


def newest(table: BaseTable, region_id: RegionId) -> FlushedGeneration:
    return manifest(table, region_id).flushed_generations[-1]


def visible(table: BaseTable) -> dict[int, str]:
    rows = Table.open(table.uri, storage_options=table.storage_options, settings=SHARING).scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def merged(table: BaseTable) -> dict[int, str]:
    admin = Table.open(table.uri, storage_options=table.storage_options, settings=SHARING)
    assert admin.run(MergeRequest()).outcome.value == "done"
    rows = lance.dataset(table.uri, storage_options=dict(table.storage_options) or None).to_table()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def first_table(place: Place, name: str = "people.lance") -> RegionId:
    place.make(name)
    table = place.table(name)
    region_id = create_region(table)
    write(table, region_id, people(1, 2, name="first"), people(2, name="second"))
    return region_id


def test_a_copied_table_shows_and_merges_its_rows_after_the_original_is_gone(place: Place) -> None:
    first_table(place)
    place.copy("people.lance", "copy.lance")
    place.remove("people.lance")
    copy = place.table("copy.lance")
    assert visible(copy) == {1: "first", 2: "second"}
    assert merged(copy) == {1: "first", 2: "second"}


def test_a_moved_table_shows_and_merges_its_rows(place: Place) -> None:
    first_table(place)
    place.move("people.lance", "moved.lance")
    moved = place.table("moved.lance")
    assert visible(moved) == {1: "first", 2: "second"}
    assert merged(moved) == {1: "first", 2: "second"}


def test_two_copies_swapped_by_moving_keep_their_own_rows(place: Place) -> None:
    region_id = first_table(place)
    place.copy("people.lance", "copy.lance")
    write(place.table("people.lance"), region_id, people(1, 8, name="of the original"))
    write(place.table("copy.lance"), region_id, people(1, 9, name="of the copy"))
    place.move("people.lance", "aside.lance")
    place.move("copy.lance", "people.lance")
    place.move("aside.lance", "copy.lance")
    of_copy = {1: "of the copy", 2: "second", 9: "of the copy"}
    of_original = {1: "of the original", 2: "second", 8: "of the original"}
    assert visible(place.table("people.lance")) == of_copy
    assert visible(place.table("copy.lance")) == of_original
    assert merged(place.table("people.lance")) == of_copy
    assert merged(place.table("copy.lance")) == of_original


@pytest.mark.parametrize("is_swapped", [True, False], ids=["own WAL", "negative control"])
def test_the_wal_at_the_recorded_address_is_another_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_swapped: bool
) -> None:
    """Sizes tell nothing: both copies have written the same position with rows of the same length."""
    place = Place(str(tmp_path), {}, has_links=False)
    region_id = first_table(place)
    place.copy("people.lance", "copy.lance")
    write(place.table("people.lance"), region_id, people(1, name="of A"))
    write(place.table("copy.lance"), region_id, people(1, name="of B"))
    for name, other in (("people.lance", "aside"), ("copy.lance", "people.lance"), ("aside", "copy.lance")):
        place.move(name, other)
    if not is_swapped:
        monkeypatch.setattr(opening, "with_base_path", lambda manifest, _: manifest)
    assert visible(place.table("people.lance"))[1] == ("of B" if is_swapped else "of A")


def test_an_older_copy_restored_in_place_never_lends_its_rows_to_the_newer_copy(place: Place) -> None:
    region_id = first_table(place)
    place.copy("people.lance", "older.lance")
    write(place.table("people.lance"), region_id, people(3, name="lost by the restore"))
    place.copy("people.lance", "newer.lance")
    place.remove("people.lance")
    place.copy("older.lance", "people.lance")
    # The same positions of the WAL get other rows, of the same length.
    write(place.table("people.lance"), region_id, people(3, name="written after that!"))
    before = {1: "first", 2: "second"}
    assert visible(place.table("newer.lance")) == before | {3: "lost by the restore"}
    assert visible(place.table("people.lance")) == before | {3: "written after that!"}
    assert merged(place.table("newer.lance")) == before | {3: "lost by the restore"}
    assert merged(place.table("people.lance")) == before | {3: "written after that!"}


@pytest.mark.req("WRT-65")
def test_only_flushed_memtables_without_links_name_the_wal_and_have_a_digest(place: Place) -> None:
    region_id = first_table(place)
    table = place.table("people.lance")
    record = newest(table, region_id)
    dataset = open_generation(table.store.uri_of(generation_path(region_id, record.path)), table.storage_options)
    if place.has_links and not place.options:
        assert (dataset.base_paths(), record.wal_digest) == ({}, None)
        assert check_contents(table.store, region_id, record) == 0
    else:
        assert [base.path for base in dataset.base_paths().values()] == [table.store.uri_of(wal_directory(region_id))]
        assert record.wal_digest is not None
        assert check_contents(table.store, region_id, record) == 2


@pytest.fixture(params=["no links", pytest.param("s3", marks=pytest.mark.s3)])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place in which flushed MemTables name the WAL."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return Place(server.uri(f"bucket/{uuid.uuid4()}"), dict(server.storage_options), has_links=True)
    return Place(str(tmp_path), {}, has_links=False)


@pytest.mark.parametrize("change", ["longer", "shorter", "gone"])
def test_an_entry_of_another_size_is_refused_by_every_reader(named: Place, change: str) -> None:
    region_id = first_table(named)
    table = named.table("people.lance")
    path = wal_entry_path(region_id, 1, ".lance")
    data = table.store.get(path)
    if change == "gone":
        table.store.delete(path)
    else:
        table.store.put(path, data + b"\0" if change == "longer" else data[:-1])
    record = newest(table, region_id)
    with pytest.raises(DamagedError, match="another size" if change != "gone" else "missing") as caught:
        visible(table)
    assert caught.value.facts["path"] == path
    assert caught.value.facts["expected"] == table.store.uri_of(wal_directory(region_id))
    assert table.store.uri_of(wal_directory(region_id)) in caught.value.facts["recorded"]
    with pytest.raises(DamagedError):
        check_contents(table.store, region_id, record)


def test_an_entry_of_another_history_with_the_same_size_is_found_by_reading_it(named: Place) -> None:
    region_id = first_table(named)
    named.copy("people.lance", "other.lance")
    for name in ("people.lance", "other.lance"):
        write(named.table(name), region_id, people(3, name=f"in {name[:5]}"))
    table, other = named.table("people.lance"), named.table("other.lance")
    path = wal_entry_path(region_id, 3, ".lance")
    assert len(table.store.get(path)) == len(other.store.get(path))
    table.store.put(path, other.store.get(path))
    record = newest(table, region_id)
    with pytest.raises(DamagedError, match="not those that were flushed"):
        check_contents(table.store, region_id, record)
    assert check_contents(other.store, region_id, newest(other, region_id)) == 1


def test_a_flushed_memtable_that_refers_to_files_elsewhere_is_refused(tmp_path: Path) -> None:
    place = Place(str(tmp_path), {}, has_links=False)
    region_id = first_table(place)
    stranger = create_region(place.table("people.lance"))
    table = place.table("people.lance")
    record = newest(table, region_id)
    own = table.store.uri_of(generation_path(region_id, record.path))
    shutil.copytree(own, table.store.uri_of(generation_path(stranger, record.path)))
    with pytest.raises(DamagedError, match="outside of its region") as caught:
        open_generation(table.store.uri_of(generation_path(stranger, record.path)), {})
    assert caught.value.facts["recorded"] == table.store.uri_of(wal_directory(region_id))
    assert caught.value.facts["expected"] == table.store.uri_of(wal_directory(stranger))


def test_rebasing_gives_other_readers_the_present_address_once(named: Place) -> None:
    region_id = first_table(named)
    named.copy("people.lance", "copy.lance")
    named.remove("people.lance")
    copy = named.table("copy.lance")
    record = newest(copy, region_id)
    uri = copy.store.uri_of(generation_path(region_id, record.path))
    with pytest.raises(Exception, match=r"Not found|not found"):
        lance.dataset(uri, storage_options=dict(named.options) or None).to_table()
    assert rebase_flushed(copy.store, region_id, record)
    assert not rebase_flushed(copy.store, region_id, record)
    table = lance.dataset(uri, storage_options=dict(named.options) or None)
    table.validate()
    assert sorted(table.to_table(columns=["id", "name"]).to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "name": "first"},
        {"id": 2, "name": "second"},
    ]
    assert visible(copy) == {1: "first", 2: "second"}
    assert check_contents(copy.store, region_id, record) == 2


def test_pylances_scanner_reads_linked_generations_after_the_wal_is_gone(tmp_path: Path) -> None:
    place = Place(str(tmp_path), {}, has_links=True)
    region_id = first_table(place)
    table = place.table("people.lance")
    shutil.rmtree(table.store.uri_of(wal_directory(region_id)))
    rows = native_scan(table.uri, [manifest(table, region_id)], ["id", "name"], "id")
    assert rows.to_pydict() == {"id": [1, 2], "name": ["first", "second"]}
    assert visible(table) == {1: "first", 2: "second"}


def test_links_that_fail_halfway_leave_no_file_behind(tmp_path: Path) -> None:
    place = Place(str(tmp_path), {}, has_links=True)
    place.make("people.lance")
    table = place.table("people.lance")
    region_id = create_region(table)
    store = table.store
    assert isinstance(store, FaultyStore)
    link = store.inner.link
    made: list[str] = []

    def link_once(path: str, source: str) -> bool:
        made.append(path)
        return len(made) == 1 and link(path, source)

    store.inner.link = link_once  # type: ignore[method-assign]
    write(table, region_id, people(1, name="a"), people(2, name="b"), people(3, name="c"))
    record = newest(table, region_id)
    assert len(made) == 2
    assert list(table.store.list_objects(f"{generation_path(region_id, record.path)}/data")) == []
    assert visible(table) == {1: "a", 2: "b", 3: "c"}
