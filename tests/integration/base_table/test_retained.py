"""Reading which versions of a table can still be opened, and their merge progress."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import lance
import pytest

from memwal_core.base_table import (
    BaseTable,
    RetainedVersion,
    files_of_other_bases,
    recall_versions,
    remember_versions,
    retained_versions,
)
from memwal_core.base_table.history import remembered
from memwal_core.base_table.history.progress import ProgressLine
from memwal_core.base_table.history.retained import FEW_VERSIONS
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.paths import (
    REMEMBERED_VERSIONS_PATH,
    parse_staged_manifest_name,
    table_manifest_name,
    version_of_manifest,
)
from memwal_core.jobs.outcome import no_lease
from memwal_core.storage import ObjectInfo, open_store
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people

REGION = native_region_id(1)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def merged_twice(tmp_path) -> BaseTable:
    """Versions: 1 rows, 2 MemWAL, 3 merged generation 1, 4 an append, 5 merged generation 2."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    merge_natively(table, people(2), {REGION: 1})
    lance.write_dataset(people(50), table.uri, mode="append")
    merge_natively(table, people(3), {REGION: 2})
    return table


def progress(table: BaseTable) -> dict[str, int | None]:
    return {each.label: each.merged.get(REGION, 0) if each.enabled else None for each in retained_versions(table, 4)}


@pytest.mark.req("GC-18")
def test_every_version_tells_its_own_progress(merged_twice):
    assert progress(merged_twice) == {
        "version 1": None,
        "version 2": 0,
        "version 3": 1,
        "version 4": 1,
        "version 5": 2,
    }


@pytest.mark.req("GC-19")
def test_cleaned_up_versions_are_gone_and_tagged_ones_stay(merged_twice):
    dataset = lance.dataset(merged_twice.uri)
    dataset.tags.create("audit", 3)
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)

    assert progress(merged_twice) == {"version 3 (tagged audit)": 1, "version 5": 2}


@pytest.mark.req("GC-17")
def test_versions_of_branches_count_too(merged_twice):
    lance.dataset(merged_twice.uri).create_branch("trial/one", 3)

    found = [each for each in retained_versions(merged_twice, 4) if each.branch is not None]

    assert [(each.branch, each.merged.get(REGION)) for each in found] == [("trial/one", 1)]


@pytest.mark.req("GC-19")
def test_tag_of_a_branch_is_not_taken_for_one_of_the_table(merged_twice):
    dataset = lance.dataset(merged_twice.uri)
    branch = dataset.create_branch("trial", 3)
    dataset.tags.create("b", ("trial", branch.version))

    tagged = {each.label for each in retained_versions(merged_twice, 4) if each.tags}

    assert tagged == {f"version {branch.version} of branch trial (tagged b)"}


def test_tag_of_a_version_that_is_gone_is_corruption(merged_twice):
    lance.dataset(merged_twice.uri).tags.create("audit", 3)
    merged_twice.store.delete(f"_versions/{table_manifest_name(3)}")

    with pytest.raises(CorruptionError) as raised:
        retained_versions(merged_twice, 4)

    assert raised.value.facts["tags"] == {"audit": 3}


def test_staged_manifest_is_no_retained_version(merged_twice):
    store = merged_twice.store
    name = f"{table_manifest_name(9)}-3f2b8c1e-0000-4000-8000-000000000000"
    store.put(f"_versions/{name}", store.get(f"_versions/{table_manifest_name(5)}"))

    assert len(retained_versions(merged_twice, 4)) == 5
    assert parse_staged_manifest_name(name) == 9


def test_table_without_other_bases_has_no_files_in_them(merged_twice):
    above, _, name = merged_twice.uri.rpartition("/")
    assert files_of_other_bases(open_store(above), name) == frozenset()


def test_files_of_a_table_that_is_not_there_are_not_found(tmp_path):
    with pytest.raises(ObjectNotFoundError):
        files_of_other_bases(open_store(str(tmp_path)), "nothing")


@pytest.fixture
def long_history(tmp_path) -> BaseTable:
    """Versions enough to be remembered, the last of a branch; progress grows in every third and once goes back."""
    table = make_people_table(str(tmp_path / "long"), rows=people(1))
    for number in range(1, FEW_VERSIONS + 2):
        merge_natively(
            table, people(number), {REGION: number // 3, native_region_id(2 + number): 1} if number % 3 == 0 else {}
        )
    dataset = lance.dataset(table.uri)
    dataset.checkout_version(4).restore()
    dataset.create_branch("trial", 5)
    dataset.tags.create("audit", 6)
    return BaseTable.open(table.uri, store=FaultyStore(table.store))


def remember(table: BaseTable) -> None:
    remember_versions(table.store, recalled(table), no_lease)


def recalled(table: BaseTable) -> tuple[RetainedVersion, ...]:
    return retained_versions(table, 4, recall=recall_versions)


def manifests_read(table: BaseTable) -> list[int | None]:
    """Return the versions whose manifests are read to find all progress, which is then what it was."""
    known = retained_versions(table, 4)
    table.store.calls.clear()
    assert recalled(table) == known
    read = sorted(call.path for call in table.store.calls if call.operation == "get_range")  # Several are read at once.
    return [version_of_manifest(path.rpartition("/")[2]) for path in read]


def test_remembered_versions_are_not_read_again(long_history):
    everything = manifests_read(long_history)
    remember(long_history)
    assert (len(everything), manifests_read(long_history)) == (len(recalled(long_history)), [])

    newest = merge_natively(long_history, people(99), {REGION: 9})
    assert manifests_read(long_history) == [newest]
    remember(long_history)
    assert manifests_read(long_history) == []


def test_nothing_is_written_where_nothing_is_new_or_few_versions_are(long_history, merged_twice):
    remember(merged_twice)
    assert merged_twice.store.head(REMEMBERED_VERSIONS_PATH) is None

    remember(long_history)
    long_history.store.calls.clear()
    remember(long_history)
    assert not [call for call in long_history.store.calls if call.operation == "put"]


def test_a_manifest_that_was_replaced_is_read(long_history):
    """As a backup that is put back does it."""
    remember(long_history)
    path = f"_versions/{table_manifest_name(3)}"
    long_history.store.put(path, long_history.store.get(path))

    assert manifests_read(long_history) == [3]


def test_only_the_newest_of_very_many_are_remembered(long_history, monkeypatch):
    monkeypatch.setattr(remembered, "_OF_A_VERSION", 1)
    monkeypatch.setattr(remembered, "_MOST_CHANGES", 10)
    everything = manifests_read(long_history)

    remember(long_history)

    assert 0 < len(manifests_read(long_history)) < len(everything)


def test_what_is_remembered_takes_no_more_memory_than_what_is_read(tmp_path):
    """1,000 regions and 5,000 versions took 180 MB, and 10,000 regions ten times as much."""
    store, line = open_store(str(tmp_path)), ProgressLine()
    progress = {native_region_id(each): 1_000 for each in range(1, 1_001)}

    def written(version: int) -> RetainedVersion:
        merged = line.next({**progress, native_region_id(version): 1_000 + version})
        return RetainedVersion(version, merged=merged, manifest=ObjectInfo(f"_versions/{version}", 9, EPOCH, None))

    versions = [written(version) for version in range(1, 301)]
    remember_versions(store, versions, no_lease)
    tracemalloc.start()
    found = recall_versions(store)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [dict(each.merged) for each in found.values()] == [dict(each.merged) for each in versions]
    assert peak < 3_000_000


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-40], id="cut"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"{}", id="nothing in it"),
        pytest.param(lambda data: b"[1]", id="another document"),
        pytest.param(lambda data: data.replace(b"[0,1,", b"[0,7,", 1), id="another progress"),
        pytest.param(lambda data: data.replace(b"true", b"false", 1), id="another fact"),
    ],
)
def test_what_is_remembered_counts_only_if_it_is_intact(long_history, damage):
    everything = manifests_read(long_history)
    remember(long_history)
    data = long_history.store.get(REMEMBERED_VERSIONS_PATH)
    assert damage(data) != data
    long_history.store.put(REMEMBERED_VERSIONS_PATH, damage(data))

    assert manifests_read(long_history) == everything
