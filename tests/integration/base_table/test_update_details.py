"""Changing the MemWAL index of real tables by compare-and-swap, against rivals of every kind."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pytest
from lance.bitmap import Bitmap
from lance.dataset import Index

from memwal_core.base_table import BaseTable, MemWalEntry, Sources, TableState
from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit.strict_commit import strict_commit
from memwal_core.base_table.commit_attempt import StrictCommit
from memwal_core.errors import CommitUnknownError, ConflictError, InvalidRequestError, UnavailableError
from memwal_core.format.memwal_index import MEM_WAL_DETAILS_TYPE_URL, MEM_WAL_INDEX_NAME, MemWalIndexDetails
from memwal_core.format.memwal_index.codec import LegacyIndexError, encode_details
from memwal_core.format.memwal_index.configure import with_region_spec
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionSpec
from memwal_core.settings import IndexSettings, Settings
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import drop_old_versions
from testkit.tables.people import make_people_table, people, reopened

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))
LEGACY = b"\x0a\x0a\x0a\x08\x0a\x06orders"
UNKNOWN = b"\x9a\x06\x03abc"


def _stamped(millis: int) -> Callable[[MemWalIndexDetails], MemWalIndexDetails]:
    return lambda details: replace(details, snapshot_ts_millis=millis)


def _nothing() -> Any:
    return lance.LanceOperation.UpdateConfig(config_updates=lance.LanceOperation.UpdateMap(updates={}, replace=False))


def _put_payload(table: BaseTable, payload: bytes) -> TableState:
    """Publish a version whose index details are the given bytes, whatever they mean."""
    state = table.state()
    attempt = StrictCommit(
        state.version, _nothing(), lambda entry: MemWalEntry(entry.index_id, payload), uuid.uuid4(), "test"
    )
    return table.state(strict_commit(table.store, DurableFiles(table.store), attempt)[0])


def _files(table: BaseTable, directory: str) -> list[str]:
    return sorted(info.path.rpartition("/")[2] for info in table.store.list_objects(directory))


@pytest.mark.req("BLD-14", "IDX-41")
def test_change_is_in_the_next_version_and_nothing_else_is(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2), storage_options=place.storage_options)
    merge_natively(table, people(2, 3), {A: 2})
    before = table.state()

    after = table.update_details(_stamped(77))

    assert after.version == before.version + 1 == table.state().version
    assert after.details == replace(before.require_details(), snapshot_ts_millis=77)
    assert (after.num_rows, after.schema) == (before.num_rows, before.schema)
    assert table.state(before.version).details == before.details
    table.dataset().validate()
    assert not [name for name in _files(table, "_versions") if ".manifest-" in name]


def test_commit_reads_nothing_back_and_tells_what_it_made(tmp_path: Path) -> None:
    """The bytes that were published are at hand; two requests that follow one another would fetch them again."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    store = FaultyStore(table.store)

    made = reopened(table, store).update_details(_stamped(77))

    (published,) = (number for number, call in enumerate(store.calls) if call.operation == "put_if_absent")
    path = store.calls[published].path
    assert _is_version(path)
    assert {call.operation for call in store.calls[published + 1 :] if call.path == path} <= {"sync_objects"}
    assert made == table.state(made.version)


def test_change_to_the_same_details_makes_no_version(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))

    assert table.update_details(lambda details: details).version == 2
    assert table.update_details(lambda _: None).version == 2
    assert table.state().version == 2


@pytest.mark.req("FMT-44", "IDX-29")
def test_fields_that_this_version_does_not_know_survive(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    old = table.state()
    assert old.entry is not None
    _put_payload(table, old.entry.payload + b"\x60\x01" + UNKNOWN)

    state = table.update_details(lambda details: with_region_spec(details, RegionSpec(9, ())))

    assert state.entry is not None
    assert state.entry.payload.count(UNKNOWN) == 1
    assert [spec.spec_id for spec in state.require_details().region_specs] == [1, 9]
    assert table.dataset().mem_wal_index_details()["maintain_all_indexes"] is True


@pytest.mark.req("BLD-15", "IDX-28", "MRG-20")
def test_merge_that_lands_in_between_keeps_its_progress(place: Any) -> None:
    """Bug class 3: progress written back from a stale read would resurrect merged generations."""
    table = make_people_table(place.uri, rows=people(1), storage_options=place.storage_options)
    merge_natively(table, people(2), {A: 3})
    stale = table.state()
    merge_natively(table, people(3), {A: 4, B: 1})
    calls: list[MemWalIndexDetails] = []

    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        calls.append(details)
        return replace(details, snapshot_ts_millis=77)

    state = table.update_details(change, read=stale)

    assert [details.merged_generations for details in calls] == [{A: 3}, {A: 4, B: 1}]
    assert state.require_details().merged_generations == {A: 4, B: 1}
    assert (state.require_details().snapshot_ts_millis, state.num_rows) == (77, 3)


@pytest.mark.req("BLD-15")
def test_without_the_strict_commit_the_same_history_loses_progress(tmp_path: Path) -> None:
    """Negative control: replacing the index with a plain CreateIndex commit from a stale read."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    merge_natively(table, people(2), {A: 3})
    stale = table.state()
    assert stale.entry is not None
    merge_natively(table, people(3), {A: 4, B: 1})

    def index(index_id: uuid.UUID, payload: bytes) -> Index:
        details = (MEM_WAL_DETAILS_TYPE_URL, payload)
        return Index(str(index_id), MEM_WAL_INDEX_NAME, [], stale.version, Bitmap(), 0, index_details=details)

    new = index(uuid.uuid4(), encode_details(replace(stale.require_details(), snapshot_ts_millis=77)))
    operation = lance.LanceOperation.CreateIndex([new], [index(stale.entry.index_id, stale.entry.payload)])
    lance.LanceDataset.commit(table.uri, operation, read_version=stale.version, max_retries=0)

    after = table.state()
    assert after.num_rows == 3
    assert after.require_details().merged_generations == {A: 3}, "the hazard that the strict commit closes"


def _merge_natively(dataset: lance.LanceDataset) -> None:
    marked = [lance.mem_wal.CompactedSsTable(str(B), 1)]
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(False)
    merge.mark_sstables_as_compacted(marked).execute(people(9))


RIVALS: dict[str, Callable[[lance.LanceDataset], Any]] = {
    "merge": _merge_natively,
    "optimize": lambda dataset: dataset.optimize.optimize_indices(),
    "rebuild": lambda dataset: dataset.create_scalar_index("name", "BTREE", name="name_idx", replace=True),
    "compact": lambda dataset: dataset.optimize.compact_files(),
    "delete": lambda dataset: dataset.delete("id = 1"),
}


@pytest.mark.req("BLD-14")
@pytest.mark.parametrize("rival", RIVALS)
def test_native_work_pinned_before_the_change_keeps_it(tmp_path: Path, rival: str) -> None:
    """The other order: whatever pylance commits later from an older version rebases over ours."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    merge_natively(table, people(2, 3), {A: 3})
    merge_natively(table, people(4), {A: 4})
    late = table.dataset()
    version = table.update_details(_stamped(77)).version

    RIVALS[rival](late)

    state = table.state()
    assert state.version > version
    assert state.require_details().snapshot_ts_millis == 77
    assert state.require_details().merged_generations == ({A: 4, B: 1} if rival == "merge" else {A: 4})


def _add_specs(uri: str, options: dict[str, str], worker: int, count: int) -> int:
    settings = Settings(index=IndexSettings(max_attempts=200))
    table = BaseTable.open(uri, storage_options=options, settings=settings)
    for number in range(count):
        spec = RegionSpec(100 * worker + number + 1, ())
        table.update_details(lambda details, spec=spec: with_region_spec(details, spec))  # type: ignore[misc]
    return worker


def _assert_all_specs_arrived(table: BaseTable, workers: int, count: int) -> None:
    found = {spec.spec_id for spec in table.state().require_details().region_specs}
    assert found == {1} | {100 * w + number for w in range(1, workers + 1) for number in range(1, count + 1)}
    assert table.state().version == 2 + workers * count
    assert not [name for name in _files(table, "_versions") if ".manifest-" in name]


@pytest.mark.req("IDX-41", "BLD-15")
def test_racing_updates_of_threads_all_arrive(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1), storage_options=place.storage_options)
    workers, count = 4, 5

    with ThreadPoolExecutor(workers) as pool:
        done = pool.map(lambda w: _add_specs(place.uri, dict(place.storage_options), w, count), range(1, workers + 1))
        assert list(done) == [1, 2, 3, 4]

    _assert_all_specs_arrived(table, workers, count)


@pytest.mark.slow
@pytest.mark.req("IDX-41", "BLD-15")
def test_racing_updates_of_processes_all_arrive(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    workers, count = 4, 5

    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        work = [pool.submit(_add_specs, table.uri, {}, worker, count) for worker in range(1, workers + 1)]
        assert [done.result() for done in work] == [1, 2, 3, 4]

    _assert_all_specs_arrived(table, workers, count)


@pytest.mark.req("BLD-15", "IDX-28", "CAT-09")
def test_racing_merges_and_updates_keep_progress_rows_and_changes(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    rounds = 12
    start = threading.Barrier(3)

    def merge(region: RegionId, first: int) -> None:
        rival = BaseTable.open(table.uri)
        start.wait()
        for generation in range(1, rounds + 1):
            merge_natively(rival, people(first + generation), {region: generation}, retries=500)

    def update() -> None:
        rival = BaseTable.open(table.uri, settings=Settings(index=IndexSettings(max_attempts=500)))
        start.wait()
        for millis in range(1, rounds + 1):
            rival.update_details(_stamped(millis))

    with ThreadPoolExecutor(3) as pool:
        for work in [pool.submit(merge, A, 100), pool.submit(merge, B, 200), pool.submit(update)]:
            work.result()

    versions = [table.state(version).details for version in range(2, table.state().version + 1)]
    history = [details for details in versions if details is not None]
    assert table.state().num_rows == 1 + 2 * rounds
    assert history[-1].merged_generations == {A: rounds, B: rounds}
    assert history[-1].snapshot_ts_millis == rounds
    for old, new in pairwise(history):
        assert all(new.merged_generation(region) >= merged for region, merged in old.merged_generations.items())
        assert new.snapshot_ts_millis >= old.snapshot_ts_millis


@pytest.mark.req("IDX-27", "MRG-20")
@pytest.mark.parametrize("merged", [{A: 1}, {A: 9}, {}])
def test_change_of_merge_progress_without_rows_is_refused(tmp_path: Path, merged: dict[RegionId, int]) -> None:
    table = make_people_table(str(tmp_path / "t"))
    merge_natively(table, people(1), {A: 3})

    with pytest.raises(InvalidRequestError, match="only in the commit"):
        table.update_details(lambda details: replace(details, merged_generations=merged))
    assert table.state().version == 3


@pytest.mark.req("LEG-06", "LEG-07")
def test_legacy_index_is_seen_and_never_touched(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    state = _put_payload(table, LEGACY)

    assert (state.is_legacy, state.details) == (True, None)
    for attempt in (
        table.require_mem_wal,
        table.require_writable,
        lambda: table.update_details(_stamped(7)),
        lambda: table.strict_commit(_nothing(), read=state, change=_stamped(7), message="m"),
    ):
        with pytest.raises(LegacyIndexError):
            attempt()
    with pytest.raises(InvalidRequestError, match="already"):
        table.create_mem_wal_index()
    after = table.state()
    assert (after.version, after.entry) == (state.version, state.entry)


def test_rival_that_is_always_first_ends_in_a_conflict(tmp_path: Path) -> None:
    clock = ManualClock()
    make_people_table(str(tmp_path / "t"))
    settings = Settings(index=IndexSettings(max_attempts=4))
    table = BaseTable.open(str(tmp_path / "t"), settings=settings, sources=Sources(clock=clock))
    rival = BaseTable.open(str(tmp_path / "t"))

    def change(details: MemWalIndexDetails) -> MemWalIndexDetails:
        merge_natively(rival, people(1))
        return replace(details, snapshot_ts_millis=5)

    with pytest.raises(ConflictError, match="every attempt"):
        table.update_details(change)
    assert len(clock.sleeps) == 4
    assert table.state().version == 6
    assert table.state().require_details().snapshot_ts_millis == 0
    assert not [name for name in _files(table, "_versions") if ".manifest-" in name]
    assert len(_files(table, "_transactions")) == 6


def _is_version(path: str) -> bool:
    return path.startswith("_versions/") and path.endswith(".manifest")


def test_lost_reply_of_the_publication_counts_as_success(tmp_path: Path) -> None:
    """Bug class 28: a reply that is lost after the write must not be taken for a failure."""
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)
    store.lose_reply("put_if_absent", path=_is_version)

    state = reopened(table, store).update_details(_stamped(5))

    assert (state.version, state.require_details().snapshot_ts_millis) == (3, 5)
    assert table.state().version == 3


def test_rivals_version_found_after_a_failed_write_is_a_conflict_and_retried(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)

    def rival_first(_: object) -> None:
        merge_natively(table, people(1), {A: 1})
        raise UnavailableError("no answer", remedy="try again")

    store.add(Rule(rival_first, Moment.BEFORE, frozenset({"put_if_absent"}), _is_version))

    state = reopened(table, store).update_details(_stamped(5))

    assert state.version == 4
    assert state.require_details().merged_generations == {A: 1}


def test_unanswered_publication_is_unknown_and_keeps_the_staged_manifest(tmp_path: Path) -> None:
    """Bug class 28: nothing may be cleaned up while the commit may still land."""
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)
    store.fail("put_if_absent", path=_is_version, times=None)

    with pytest.raises(CommitUnknownError) as caught:
        reopened(table, store).update_details(_stamped(5))

    assert table.state().version == 2
    (staged,) = (name for name in _files(table, "_versions") if ".manifest-" in name)
    assert caught.value.facts["transaction_id"].encode() in table.store.get(f"_versions/{staged}")
    assert table.update_details(_stamped(6)).version == 3


def test_publication_that_landed_without_an_answer_is_unknown_and_named_in_its_version(tmp_path: Path) -> None:
    """Lance reads the version back by itself, and ends well."""
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)
    store.lose_reply("put_if_absent", path=_is_version)
    store.fail("get", path=_is_version, times=None)

    with pytest.raises(CommitUnknownError) as caught:
        reopened(table, store).update_details(_stamped(5))

    assert table.state().version == 3
    made = table.store.get(table.manifests.locate(3).path)
    assert caught.value.facts["transaction_id"].encode() in made


def test_publication_without_an_answer_that_nobody_may_look_for_is_unknown(tmp_path: Path) -> None:
    """It was told as an impossible state of pylance, which had read the version back."""
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)

    def refuse(_: object) -> None:
        raise InvalidRequestError("the store refused access", remedy="check credentials")

    store.lose_reply("put_if_absent", path=_is_version)
    store.add(Rule(refuse, Moment.BEFORE, frozenset({"get"}), _is_version, times=None))

    with pytest.raises(CommitUnknownError) as caught:
        reopened(table, store).update_details(_stamped(5))

    made = table.store.get(table.manifests.locate(3).path)
    assert caught.value.facts["transaction_id"].encode() in made


CRASHING = """
import os, sys
from dataclasses import replace
from memwal_core.base_table import BaseTable
from memwal_core.storage import open_store
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.foreign_merges import merge_natively
uri, moment = sys.argv[1:]
store = FaultyStore(open_store(uri))
store.add(Rule(lambda call: os._exit(9), Moment(moment), frozenset({"put_if_absent"})))
BaseTable.open(uri, store=store).update_details(lambda details: replace(details, snapshot_ts_millis=5))
"""


@pytest.mark.req("BLD-14", "MRG-06")
@pytest.mark.parametrize(("moment", "version"), [("before", 2), ("after", 3)])
def test_process_that_dies_around_publication_leaves_all_or_nothing(tmp_path: Path, moment: str, version: int) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))

    died = subprocess.run([sys.executable, "-c", CRASHING, table.uri, moment], check=False, capture_output=True)

    assert died.returncode == 9, died.stderr.decode()
    assert len([name for name in _files(table, "_versions") if ".manifest-" in name]) == 1
    state = table.state()
    assert state.version == version
    assert state.require_details().snapshot_ts_millis == (5 if moment == "after" else 0)
    assert state.num_rows == 1
    assert table.update_details(_stamped(8)).version == version + 1
    merge_natively(table, people(2), {A: 1})
    table.dataset().validate()


def test_version_made_outside_of_the_history_is_reported(tmp_path: Path) -> None:
    """Bug class 17: cleaned up version numbers are free again, and put-if-absent accepts them."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    table.dataset().tags.create("kept", 2)
    store = FaultyStore(table.store)

    def history_moves_on(_: object) -> None:
        for number in range(2, 5):
            merge_natively(table, people(number))
        (tmp_path / "t" / "_versions" / f"{2**64 - 1 - 3:020d}.manifest").unlink()

    store.add(Rule(history_moves_on, Moment.BEFORE, frozenset({"put_if_absent"}), _is_version))

    with pytest.raises(CommitUnknownError, match="not be part of the table's history"):
        reopened(table, store).update_details(_stamped(5))
    assert table.state().version == 5
    assert table.state().require_details().snapshot_ts_millis == 0


@pytest.mark.req("BLD-14", "BLD-15")
def test_commit_from_a_version_that_was_removed_meanwhile_is_a_conflict(place: Any) -> None:
    """It was ``UnavailableError``: pylance reports the missing version as a read that failed."""
    table = make_people_table(place.uri, rows=people(1), storage_options=place.storage_options)
    stale = table.state()
    merge_natively(table, people(2), {A: 1})
    drop_old_versions(place.uri, place.storage_options)
    before = [_files(table, directory) for directory in ("_versions", "_transactions")]

    with pytest.raises(ConflictError, match="was removed meanwhile") as caught:
        table.strict_commit(_nothing(), read=stale, change=_stamped(5), message="late")

    assert caught.value.facts["read_version"] == stale.version
    assert [_files(table, directory) for directory in ("_versions", "_transactions")] == before
    # Who repeats it reads anew, so the rival's progress stays.
    state = table.update_details(_stamped(5), read=stale)
    assert (state.require_details().snapshot_ts_millis, state.require_details().merged_generations) == (5, {A: 1})


@pytest.mark.req("BLD-14", "BLD-15")
@pytest.mark.parametrize("versions", [0, 1], ids=["older", "as old"])
def test_commit_from_a_version_of_a_table_that_was_made_again_is_a_conflict(tmp_path: Path, versions: int) -> None:
    """The place of the next version is free, and what was opened of the dropped table names files that are gone."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    merge_natively(table, people(2), {A: 1})
    stale = table.state()
    shutil.rmtree(tmp_path / "t")
    again = make_people_table(str(tmp_path / "t"), rows=people(1))
    for number in range(versions):
        merge_natively(again, people(2), {A: number + 1})
    before = again.state()

    with pytest.raises(ConflictError, match="was removed meanwhile"):
        table.strict_commit(_nothing(), read=stale, change=_stamped(5), message="late")

    assert again.state() == before
    assert not [name for name in _files(again, "_versions") if ".manifest-" in name]


def test_commit_keeps_its_error_if_the_version_it_read_is_still_there(tmp_path: Path) -> None:
    """Only a version that is gone is a lost race; a store that does not answer stays what it is."""
    table = make_people_table(str(tmp_path / "t"))
    store = FaultyStore(table.store)
    store.fail("head", path=_is_version, times=None)

    with pytest.raises(UnavailableError):
        reopened(table, store).strict_commit(_nothing(), read=table.state(), change=_stamped(5), message="m")

    assert table.state().version == 2
