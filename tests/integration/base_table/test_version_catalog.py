"""Lance's own operations through the version catalog: durable, in order, and never at the cost of merge progress."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.bitmap import Bitmap
from lance.dataset import Index

from memwal_core.base_table import (
    BaseTable,
    CompactionOptions,
    compact_fragments,
    extend_index,
    publish_snapshot,
    remove_versions,
)
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, MemwalError, UnavailableError
from memwal_core.format.memwal_index.snapshot import snapshot_schema
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, table_manifest_path
from memwal_core.format.table_manifest import read_named_files
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.storage import open_store
from memwal_core.table import Table
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.faults.faulty_store import FaultyStore
from testkit.faults.process_limits import largest_file
from testkit.s3_server import s3_server
from testkit.tables.native_regions import Put, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people, reopened
from tests.integration.base_table.test_state import A, mark_natively

OPTIONS = CompactionOptions(1 << 20, 1 << 30, 0.1, 1024, 1)


def upsert(dataset: lance.LanceDataset, rows: pa.Table, retries: int = 10) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.use_index(False).conflict_retries(retries).execute(rows)


def made(place: Any) -> BaseTable:
    return make_people_table(place.uri, rows=people(1, 2), storage_options=place.storage_options)


@pytest.mark.s3
def test_every_operation_of_lance_keeps_progress_and_snapshot(place: Any) -> None:
    table = made(place)
    options = dict(place.storage_options) or None
    lance.dataset(place.uri, storage_options=options).create_scalar_index("name", "BTREE", name="name_idx")
    snapshot = snapshot_schema(table.state().require_details().region_specs).empty_table()
    state = publish_snapshot(table, snapshot, taken=table.clock.now())
    with table.committing() as dataset:
        upsert(dataset, people(2, 3, name="new"))
    with table.committing() as dataset:
        dataset.delete("id = 1")
    with table.committing() as dataset:
        upsert(dataset, people(7))
    version = extend_index(table, "name_idx", read_version=table.state().version, segments_to_merge=1)
    with table.committing(version) as dataset:
        dataset.create_scalar_index("score", "BTREE", name="score_idx")
    result = compact_fragments(table, read_version=version + 1, keep=[], options=OPTIONS)

    now = table.state()
    assert (now.version, result.fragments_added) == (result.version, 1)
    assert sorted(table.dataset().to_table().column("id").to_pylist()) == [2, 3, 7]
    assert state.entry is not None
    assert now.entry is not None
    assert now.entry.index_id == state.entry.index_id, "the id names the external snapshot"
    left = [info.path for info in table.store.list_objects(TABLE_VERSIONS_DIRECTORY) if ".manifest-" in info.path]
    assert left == [], "staged manifests are removed"


def test_two_handles_lose_nothing_to_each_other(tmp_path: Path) -> None:
    """Lance gives up when the catalog refuses a version that is taken; whoever repeats it then loses nothing."""
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))

    def work(first: int) -> int:
        table, lost = BaseTable.open(uri), 0
        for number in range(6):
            while True:
                try:
                    with table.committing() as dataset:
                        upsert(dataset, people(1, first + number), retries=0)
                except ConflictError:
                    lost += 1
                    continue
                break
        return lost

    with ThreadPoolExecutor(2) as threads:
        lost = list(threads.map(work, (100, 200)))

    found = sorted(BaseTable.open(uri).dataset().to_table().column("id").to_pylist())
    assert found == [1, 2, *range(100, 106), *range(200, 206)]
    assert BaseTable.open(uri).dataset().version == 14
    assert sum(lost) > 0, "the handles did not meet"


def test_stale_handle_goes_on_from_the_newest_version(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))

    with table.committing() as dataset:
        mark_natively(table.uri, people(5), {A: 3})
        dataset.delete("id = 1")

    state = table.state()
    assert (state.version, state.num_rows) == (4, 2)
    assert state.require_details().merged_generations == {A: 3}


def test_commit_that_would_lower_progress_is_refused(tmp_path: Path) -> None:
    """Lance rebases a replaced MemWAL index over newer progress without a word; the catalog does not publish it."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    stale = table.state()
    assert stale.entry is not None
    operation = _replaced_index(stale.version, stale.entry)
    mark_natively(table.uri, people(5), {A: 3})

    with pytest.raises(ConflictError, match="merge progress"), table.committing(stale.version) as dataset:
        lance.LanceDataset.commit(
            dataset,
            operation,
            read_version=stale.version,
        )

    assert table.state().require_details().merged_generations == {A: 3}


def _replaced_index(version: int, entry: Any) -> Any:
    def index(uuid: str) -> Any:
        details = ("/lance.table.MemWalIndexDetails", entry.payload)
        return Index(
            uuid=uuid,
            name="__lance_mem_wal",
            fields=[],
            dataset_version=version,
            fragment_ids=Bitmap(),
            index_version=0,
            index_details=details,
        )

    return lance.LanceOperation.CreateIndex(
        new_indices=[index("0a000000-0000-4000-8000-0000000000aa")], removed_indices=[index(str(entry.index_id))]
    )


@pytest.mark.parametrize("operation", ["get", "put_if_absent"])
def test_store_that_fails_publishes_nothing_and_says_so(tmp_path: Path, operation: str) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    store = FaultyStore(open_store(uri))
    table = BaseTable.open(uri, store=store)
    store.fail(operation, path=lambda path: path.startswith(TABLE_VERSIONS_DIRECTORY), times=None)

    with pytest.raises(MemwalError), table.committing() as dataset:
        dataset.delete("id = 1")

    assert lance.dataset(uri).version == 2


def test_lost_reply_is_settled_by_reading_back(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    store = FaultyStore(open_store(uri))
    table = BaseTable.open(uri, store=store)
    store.lose_reply("put_if_absent", path=lambda path: path == table_manifest_path(3))

    with table.committing() as dataset:
        dataset.delete("id = 1")

    assert (table.state().version, table.state().num_rows) == (3, 1)


@pytest.mark.s3
def delete(table: BaseTable) -> None:
    with table.committing() as dataset:
        dataset.delete("id = 1")


def maintain(table: BaseTable) -> None:
    table.update_details(lambda details: replace(details, maintained_indexes=("name",)))


@pytest.mark.parametrize("commit", [delete, maintain])
def test_disk_that_fills_up_before_the_version_is_asked_for_leaves_no_doubt(
    tmp_path: Path, commit: Callable[[BaseTable], None]
) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))

    # Room for a transaction, and not for a manifest.
    with largest_file(600), pytest.raises(UnavailableError):
        commit(table)

    assert BaseTable.open(table.uri).dataset().version == 2


def test_half_of_a_staged_manifest_is_never_published() -> None:
    """It became the first version of a new table, which could neither be opened nor created any more."""
    with s3_server() as server, faulty_proxy(server.endpoint) as proxy:
        uri, direct = server.uri("bucket/t.lance"), dict(server.storage_options)
        options = {**direct, "aws_endpoint": proxy.endpoint}

        proxy.halve_reply("GET", ".manifest-")
        with pytest.raises(UnavailableError, match="a part"):
            Table.create(uri, PEOPLE, key="id", storage_options=options)
        table = Table.create(uri, PEOPLE, key="id", storage_options=options).base

        proxy.halve_reply("GET", ".manifest-")
        with pytest.raises(UnavailableError, match="a part"), table.committing() as dataset:
            upsert(dataset, people(1))
        assert lance.dataset(uri, storage_options=direct).count_rows() == 0
        with table.committing() as dataset:
            upsert(dataset, people(1))
        assert lance.dataset(uri, storage_options=direct).count_rows() == 1


def test_silent_store_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    store = FaultyStore(open_store(uri))
    table = BaseTable.open(uri, store=store)
    store.lose_reply("put_if_absent", path=lambda path: path == table_manifest_path(3))
    store.fail("get", path=lambda path: path == table_manifest_path(3), times=None)

    with pytest.raises(CommitUnknownError), table.committing() as dataset:
        dataset.delete("id = 1")

    assert lance.dataset(uri).version == 3


def test_catch_up_that_lance_credits_on_a_table_of_ours_is_published(tmp_path: Path) -> None:
    """With the credit, Lance writes defaults of its own fields; the catalog took that for a lost configuration."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    write_native_generations(table.uri, A, [[Put(people(2, 3, name="new"))]])
    Table.open(table.uri).run(MergeRequest())

    extend_index(table, "name_idx", read_version=table.state().version, segments_to_merge=1)

    details = table.state().require_details()
    assert (details.index_catchup, details.merged_generations) == ({"name_idx": {A: 1}}, {A: 1})


class Syncs:
    """Which files and directories were synced, and when manifests were published, in order."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.seen: list[str] = []

    def note(self, path: str) -> None:
        self.seen.append(os.path.relpath(path, self.root))


@pytest.fixture
def syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    noted = Syncs(str(tmp_path / "t"))
    fsync, link = os.fsync, os.link

    def noting(descriptor: int) -> None:
        noted.note(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def linking(source: str, target: str) -> None:
        link(source, target)
        noted.note(f"{target}!")

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "link", linking)
    return noted


def missing_syncs(table: BaseTable, noted: Syncs, version: int) -> set[str]:
    """Return what a version names that was not synced before its manifest was published."""
    manifest = table_manifest_path(version)
    published = noted.seen.index(f"{manifest}!") if f"{manifest}!" in noted.seen else None
    before = set(noted.seen[:published])
    named = read_named_files(Path(table.uri, manifest).read_bytes())
    inside = {
        str(path.relative_to(table.uri))
        for directory in named.directories
        for path in Path(table.uri, directory).rglob("*")
    }
    wanted = {*named.files, *inside}
    wanted |= {os.path.dirname(path) for path in wanted}
    after = set(noted.seen[published or 0 :])
    return (wanted - before) | ({TABLE_VERSIONS_DIRECTORY} - after)


def test_everything_a_version_names_is_synced_before_it_is_published(tmp_path: Path, syncs: Syncs) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    lance.dataset(table.uri).insert(people(3))  # Another program's commit, which nothing synced.
    with table.committing() as dataset:
        upsert(dataset, people(2, 4, name="new"))
    with table.committing() as dataset:
        dataset.create_scalar_index("name", "BTREE", name="name_idx")
    with table.committing() as dataset:
        dataset.delete("id = 1")
    compacted = compact_fragments(table, read_version=table.state().version, keep=[], options=OPTIONS).version

    assert table_manifest_path(3) in syncs.seen, "the manifest of the version before"
    assert {version: missing_syncs(table, syncs, version) for version in range(4, compacted + 1)} == {
        version: set() for version in range(4, compacted + 1)
    }


def test_lance_alone_syncs_nothing(tmp_path: Path, syncs: Syncs) -> None:
    """The negative control: the same commit without the catalog."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    upsert(table.dataset(), people(2, 4, name="new"))

    missing = {path.partition("/")[0] for path in missing_syncs(table, syncs, 3)}
    assert missing == {"data", "_deletions", "_transactions"}


def test_file_is_synced_once(tmp_path: Path, syncs: Syncs) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    for number in range(5, 8):
        with table.committing() as dataset:
            upsert(dataset, people(number))

    data = [path for path in syncs.seen if path.startswith("data/")]
    assert len(data) == len(set(data)) == 4


def test_commit_whose_files_were_cleaned_up_is_refused(tmp_path: Path) -> None:
    """Another process may remove young files that no version names yet; a version must not name what is gone."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    with table.committing() as dataset:
        transaction = dataset.merge_insert("id").when_not_matched_insert_all().execute_uncommitted(people(9))[0]
        (written,) = transaction.operation.new_fragments
        Path(table.uri, "data", written.files[0].path).unlink()
        with pytest.raises(MemwalError, match="gone"):
            _commit(table, dataset, transaction)

    assert lance.dataset(table.uri).version == 2


def test_versions_are_removed_only_after_the_newest_is_synced(tmp_path: Path, syncs: Syncs) -> None:
    """S5: `compact --remove-versions` deleted the old versions first, and a power cut took the whole table."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    old = table.dataset().version
    lance.dataset(table.uri).delete("id = 1")
    lance.dataset(table.uri).optimize.compact_files()
    newest = table.dataset().version
    store = FaultyStore(table.store)
    store.fail("sync_objects", path=lambda path: path.startswith("data/"), times=None)

    with pytest.raises(MemwalError):
        remove_versions(BaseTable.open(table.uri, store=store), [old])
    assert table.dataset(old).count_rows() == 2, "nothing was removed"
    syncs.seen.clear()
    removed = remove_versions(table, [old])

    assert removed.versions == 1
    assert missing_syncs(table, syncs, newest) == set()


def test_nothing_is_removed_if_the_newest_version_lacks_a_file(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    old = table.dataset().version
    lance.dataset(table.uri).insert(people(3))
    newest = read_named_files(Path(table.uri, table_manifest_path(old + 1)).read_bytes())
    before = read_named_files(Path(table.uri, table_manifest_path(old)).read_bytes())
    (lost,) = (path for path in newest.files - before.files if path.startswith("data/"))
    Path(table.uri, lost).unlink()

    with pytest.raises(CorruptionError, match="missing"):
        remove_versions(table, [old])

    assert table.dataset(old).count_rows() == 2


def _commit(table: BaseTable, dataset: lance.LanceDataset, transaction: Any) -> None:
    read = table.state(dataset.version)
    table.strict_commit(transaction.operation, read=read, change=lambda details: details, message="late")


@pytest.mark.parametrize("strict", [False, True], ids=["of Lance", "strict"])
def test_store_that_does_not_say_where_a_version_is_is_no_refusal(tmp_path: Path, strict: bool) -> None:
    """It was told as a request that Lance refused, which nobody tries again."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    store = FaultyStore(table.store)
    faulty = reopened(table, store)
    state = faulty.state()
    store.fail("head", "list_objects", path=lambda path: path.startswith(TABLE_VERSIONS_DIRECTORY), times=None)

    def delete() -> None:
        with faulty.committing(state.version) as dataset:
            dataset.delete("id = 1")

    def append_nothing() -> None:
        operation = lance.LanceOperation.Append([])
        faulty.strict_commit(operation, read=state, change=lambda details: details, message="late")

    with pytest.raises(UnavailableError, match="did not answer"):
        append_nothing() if strict else delete()

    assert table.state().version == state.version


def test_commit_imports_no_rest_client(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    code = (
        "import sys; from memwal_core.base_table import BaseTable; "
        f"table = BaseTable.open({uri!r}); state = table.state(); "
        "manager = table.committing(); dataset = manager.__enter__(); dataset.delete('id = 1'); "
        "manager.__exit__(None, None, None); "
        "print(table.state().version, [name for name in sys.modules if name.startswith('lance_namespace')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "3 []"
