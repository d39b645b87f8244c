"""The index builder on real tables: what it writes, and what it leaves alone."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, read_snapshot, remove_versions
from memwal_core.clock import unix_millis
from memwal_core.errors import FencedError
from memwal_core.failpoints import Failpoint
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import manifest_path, region_directory, wal_entry_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.plan import SnapshotReason
from memwal_core.jobs.snapshot.report import SnapshotReport
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.snapshot.run import (
    SNAPSHOT_BUILT,
    SNAPSHOT_PUBLISHED,
    SNAPSHOT_SURVEYED,
    build_region_snapshot,
)
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest, record_flush
from memwal_core.region.spec import RegionRouter, encode_region_value
from memwal_core.settings import IndexSettings, Settings, StorageSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.rng import seeded_rng
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people, reopened, with_clock

SETTINGS = Settings(
    storage=StorageSettings(fsync=False, retry_wait_s=0), index=IndexSettings(inline_snapshot_threshold=2)
)
NATIVE = native_region_id(1)


def manifest_store(table: BaseTable) -> ManifestStore:
    return ManifestStore(table.store, IdSource(seeded_rng(1)), settings=SETTINGS.storage, clock=ManualClock())


def parts_of(table: BaseTable, clock: ManualClock | None = None, **more) -> JobContext:
    return JobContext(OpenTable.of(with_clock(table, clock or ManualClock())), **more)


PLACES = (SNAPSHOT_SURVEYED, SNAPSHOT_BUILT, SNAPSHOT_PUBLISHED)


def build(table: BaseTable, *, force: bool = False, **more) -> SnapshotReport:
    return build_region_snapshot(parts_of(table, **more), force=force)


def stored_rows(table: BaseTable, version: int | None = None) -> dict[RegionId, RegionManifest]:
    snapshot = read_snapshot(table, table.state(version))
    assert snapshot is not None
    return {manifest.region_id: manifest for manifest in snapshot_manifests(snapshot)}


def seen(manifest: RegionManifest) -> RegionManifest:
    """Return what a snapshot row holds of a manifest."""
    flushed = tuple(FlushedGeneration(each.generation, each.path) for each in manifest.flushed_generations)
    return RegionManifest(
        region_id=manifest.region_id,
        version=manifest.version,
        region_spec_id=manifest.region_spec_id,
        region_field_values=manifest.region_field_values,
        writer_epoch=manifest.writer_epoch,
        replay_after_wal_id=manifest.replay_after_wal_id,
        wal_id_last_seen=manifest.wal_id_last_seen,
        current_generation=manifest.current_generation,
        flushed_generations=flushed,
    )


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "t"), rows=people(1, 2), settings=SETTINGS)


def region(table: BaseTable, **more) -> RegionManifest:
    return manifest_store(table).create(IdSource().region_id(), **more)


def put_wal(table: BaseTable, region_id: RegionId, *wal_ids: int, suffix: str = ".lance") -> None:
    for wal_id in wal_ids:
        table.store.put(wal_entry_path(region_id, wal_id, suffix), b"entry")


@pytest.mark.req("BLD-05", "BLD-10", "BLD-11", "BLD-14", "IDX-02", "IDX-15", "IDX-24")
def test_snapshot_has_one_row_per_region_of_ours_and_of_pylance(table: BaseTable) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
        writer.put(people(*range(5)))
    write_native_generations(table.uri, NATIVE, [[Put(people(900))], [Put(people(901))]])
    version = table.state().version

    report = build(table)

    assert (report.outcome, report.version_after, report.plan.regions) == (JobOutcome.DONE, version + 1, 5)
    manifests = manifest_store(table).load_many(manifest_store(table).region_ids())
    assert stored_rows(table) == {manifest.region_id: seen(manifest) for manifest in manifests}
    spec = table.state().require_details().region_specs[0]
    router = RegionRouter(spec, table.state().field_ids)
    routed = [dict(encode_region_value(spec, value)) for value in set(router.values(people(*range(40))))]
    values = [dict(row.region_field_values) for each, row in stored_rows(table).items() if each != NATIVE]
    assert sorted(map(str, values)) == sorted(map(str, routed))
    assert stored_rows(table)[NATIVE].region_field_values == {}


@pytest.mark.req("BLD-06", "BLD-08", "BLD-09", "BLD-16")
def test_hints_of_both_codecs_reach_the_end_of_the_wal(table: BaseTable) -> None:
    with TableWriter.open(table) as writer:
        for number in range(6):
            writer.put(people(1, name=f"n{number}"))
        (ours,) = [open_writer.region_id for open_writer in writer.writers.values()]
        with table.dataset().mem_wal_writer(str(NATIVE), max_wal_flush_interval_ms=1) as native:
            for number in range(4):
                native.put(people(900 + number))
            before = {each: manifest_store(table).load(each) for each in (ours, NATIVE)}
            tails = {each: len(list(table.store.list_objects(f"{region_directory(each)}/wal"))) for each in before}
            report = build(table)

    assert all(before[each].wal_id_last_seen < tails[each] for each in before)
    assert report.hints_raised == tails
    rows = stored_rows(table)
    for each, manifest in before.items():
        assert rows[each].wal_id_last_seen == tails[each]
        assert rows[each] == seen(replace(manifest, version=manifest.version + 1, wal_id_last_seen=tails[each]))


@pytest.mark.req("BLD-07")
@pytest.mark.parametrize("suffix", [".lance", ".arrow"])
def test_tail_is_found_behind_deleted_entries(table: BaseTable, suffix: str) -> None:
    made = region(table)
    stores = manifest_store(table)
    flushed = FlushedGeneration(1, "0a0a0a0a_gen_1")
    stores.update(made.region_id, lambda stored: record_flush(stored, flushed, 10, 10))
    put_wal(table, made.region_id, 11, 12, 13, suffix=suffix)

    build(table)

    assert stores.load(made.region_id).wal_id_last_seen == 13


@pytest.mark.req("BLD-08")
def test_hint_of_12_with_entries_to_17_becomes_17_and_costs_no_second_build(table: BaseTable) -> None:
    made = region(table)
    stores = manifest_store(table)
    stores.update(made.region_id, lambda stored: replace(stored, wal_id_last_seen=12))
    put_wal(table, made.region_id, *range(1, 18))

    report = build(table)

    assert report.hints_raised == {made.region_id: 17}
    assert stored_rows(table)[made.region_id].wal_id_last_seen == 17
    assert build(table).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("BLD-08")
def test_hint_that_cannot_be_written_does_not_stop_the_build(table: BaseTable) -> None:
    made, other = region(table), region(table)
    put_wal(table, made.region_id, 1, 2)
    faulty = FaultyStore(table.store)
    faulty.fail("put_if_absent", path=lambda path: path.startswith(region_directory(made.region_id)), times=None)

    report = build(reopened(table, faulty, SETTINGS))

    assert (report.outcome, report.hints_failed, report.hints_raised) == (JobOutcome.DONE, (made.region_id,), {})
    assert set(stored_rows(table)) == {made.region_id, other.region_id}
    assert stored_rows(table)[made.region_id] == seen(made)
    again = build(reopened(table, faulty, SETTINGS))
    assert again.outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("BLD-09")
def test_flush_that_commits_before_the_hint_keeps_its_fields(table: BaseTable) -> None:
    made = region(table)
    put_wal(table, made.region_id, 1, 2, 3)
    flushed = FlushedGeneration(1, "0a0a0a0a_gen_1")
    faulty = FaultyStore(table.store)

    def flush(_call: object) -> None:
        manifest_store(table).update(made.region_id, lambda stored: record_flush(stored, flushed, 2, 2))

    own = region_directory(made.region_id)
    faulty.add(Rule(flush, Moment.BEFORE, frozenset({"put_if_absent"}), lambda path: path.startswith(own)))
    build(reopened(table, faulty, SETTINGS))

    now = manifest_store(table).load(made.region_id)
    assert (now.replay_after_wal_id, now.wal_id_last_seen, now.current_generation) == (2, 3, 2)
    assert now.flushed_generations == (flushed,)
    assert stored_rows(table)[made.region_id] == seen(now)


@pytest.mark.req("BLD-04")
def test_names_that_are_no_regions_are_ignored_with_a_warning(table: BaseTable, caplog) -> None:
    made = region(table)
    table.store.put("_mem_wal/notes/readme.txt", b"x")
    table.store.put("_mem_wal/stray.txt", b"x")
    with caplog.at_level(logging.WARNING):
        build(table)
    assert set(stored_rows(table)) == {made.region_id}
    assert "notes" in caplog.text


@pytest.mark.req("BLD-19")
def test_damaged_region_keeps_its_row_and_the_snapshot_its_age(table: BaseTable) -> None:
    good, bad = region(table), region(table)
    build(table)
    before, rows = table.state().require_details(), stored_rows(table)
    table.store.put(manifest_path(bad.region_id, 2), b"\xff\xff garbage")
    put_wal(table, good.region_id, 1)
    report = build(table)
    assert (report.outcome, list(report.plan.parked)) == (JobOutcome.PARTIAL, [bad.region_id])
    assert manifest_path(bad.region_id, 2) in report.plan.parked[bad.region_id]
    after = stored_rows(table)
    assert set(after) == {good.region_id, bad.region_id}
    assert after[bad.region_id] == rows[bad.region_id]
    assert after[good.region_id] != rows[good.region_id]
    # Readers are promised no more than the oldest row can keep.
    assert table.state().require_details().snapshot_ts_millis == before.snapshot_ts_millis
    assert build(table).plan.reason is SnapshotReason.UNCHANGED
    table.store.delete(manifest_path(bad.region_id, 2))
    assert build(table).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("BLD-19")
def test_region_with_data_and_no_manifest_is_not_dropped_silently(table: BaseTable) -> None:
    orphan = IdSource().region_id()
    put_wal(table, orphan, 1)
    report = build(table)
    assert (report.outcome, report.plan.reason) == (JobOutcome.PARTIAL, SnapshotReason.DAMAGED)
    assert list(report.plan.parked) == [orphan]


@pytest.mark.req("BLD-19")
@pytest.mark.parametrize("known_by", ["snapshot", "merge progress"])
def test_region_that_the_table_knows_and_that_is_gone_is_not_dropped_silently(table: BaseTable, known_by: str) -> None:
    made = region(table)
    if known_by == "snapshot":
        build(table)
    else:
        merge_natively(table, people(5), {made.region_id: 1})
    shutil.rmtree(Path(table.uri) / region_directory(made.region_id))
    report = build(table)
    assert (report.outcome, list(report.plan.parked)) == (JobOutcome.PARTIAL, [made.region_id])
    if known_by == "snapshot":
        assert set(stored_rows(table)) == {made.region_id}


def test_region_that_is_just_being_created_is_left_out(table: BaseTable) -> None:
    (Path(table.uri) / region_directory(IdSource().region_id()) / "manifest").mkdir(parents=True)
    assert build(table).plan.regions == 0


@pytest.mark.req("BLD-04", "BLD-15")
def test_region_created_and_merged_after_the_listing_is_taken_in(table: BaseTable) -> None:
    first = region(table)
    faulty = FaultyStore(table.store)
    late: list[RegionId] = []

    def create(_call: object) -> None:
        late.append(region(table).region_id)
        merge_natively(table, people(5), {late[0]: 1})

    faulty.add(Rule(create, Moment.AFTER, frozenset({"list_directories"}), lambda path: path == "_mem_wal"))
    build(reopened(table, faulty, SETTINGS))
    assert set(stored_rows(table)) == {first.region_id, *late}


@pytest.mark.req("BLD-21", "IDX-07", "IDX-08")
def test_second_build_finds_nothing_to_do_and_a_forced_one_publishes_the_same_rows(table: BaseTable) -> None:
    region(table)
    clock = ManualClock()
    first = build_region_snapshot(parts_of(table, clock))
    rows = stored_rows(table)
    assert table.state().require_details().snapshot_ts_millis == unix_millis(clock.now())
    second = build(table)
    assert (second.outcome, second.outcome.exit_code) == (JobOutcome.NOTHING_TO_DO, 3)
    assert second.version_after == first.version_after
    clock.advance(60)
    forced = build_region_snapshot(parts_of(table, clock), force=True)
    assert (forced.outcome, forced.plan.reason) == (JobOutcome.DONE, SnapshotReason.FORCED)
    assert stored_rows(table) == rows
    details = table.state().require_details()
    assert (details.snapshot_ts_millis, details.num_regions) == (unix_millis(clock.now()), 1)


@pytest.mark.req("BLD-21")
def test_build_whose_lease_was_lost_publishes_nothing(table: BaseTable) -> None:
    made = region(table)
    put_wal(table, made.region_id, 1)
    version = table.state().version

    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        build(table, guard=lost)
    assert table.state().version == version
    assert manifest_store(table).load(made.region_id) == made


def test_dry_run_says_what_would_change_and_changes_nothing(table: BaseTable) -> None:
    made = region(table)
    put_wal(table, made.region_id, 1, 2)
    before = sorted(info.path for info in table.store.list_objects(""))
    report = build_region_snapshot(parts_of(table), dry_run=True)
    assert (report.outcome, dict(report.plan.hints)) == (JobOutcome.PLANNED, {made.region_id: 2})
    assert sorted(info.path for info in table.store.list_objects("")) == before


@pytest.mark.req("BLD-02", "BLD-03", "BLD-13", "IDX-29")
def test_build_changes_the_snapshot_fields_and_nothing_else(table: BaseTable) -> None:
    regions = [region(table) for _ in range(2)]
    merge_natively(table, people(5), {regions[0].region_id: 2})
    table.dataset().create_scalar_index("name", "BTREE")
    table.update_details(lambda details: replace(details, maintained_indexes=("name_idx",)))
    merge_natively(table, people(6), {regions[0].region_id: 3})
    before = table.state()
    assert before.require_details().index_catchup == {"name_idx": {regions[0].region_id: 2}}

    build(table)

    after = table.state()
    old, new = before.require_details(), after.require_details()
    assert new == replace(
        old,
        snapshot_ts_millis=new.snapshot_ts_millis,
        num_regions=2,
        inline_snapshots=new.inline_snapshots,
    )
    assert new.inline_snapshots is not None
    assert table.dataset(after.version).to_table().equals(table.dataset(before.version).to_table())


@pytest.mark.req("BLD-12", "BLD-20", "IDX-12")
def test_old_version_reads_its_external_snapshot_after_the_move_inline_and_a_cleanup(table: BaseTable) -> None:
    for _ in range(3):
        region(table)
    external = build(table)
    assert table.state().require_details().inline_snapshots is None
    rows = stored_rows(table)
    table.dataset().tags.create("audit", external.version_after)
    wide = BaseTable.open(table.uri, settings=SETTINGS.model_copy(update={"index": IndexSettings()}))

    moved = build(wide)

    assert (moved.outcome, moved.plan.reason) == (JobOutcome.DONE, SnapshotReason.FORM)
    assert table.state().require_details().inline_snapshots is not None
    assert stored_rows(table, external.version_after) == rows == stored_rows(table)
    remove_versions(table, range(1, moved.version_after))
    assert stored_rows(table, external.version_after) == rows
    table.dataset().tags.delete("audit")
    removed = remove_versions(table, [external.version_after])
    assert removed.index_files == 1
    assert not [info for info in table.store.list_objects("_indices") if info.path.endswith("index.lance")]


@pytest.mark.req("BLD-17", "IDX-14")
def test_reading_an_inline_snapshot_costs_no_request_beyond_the_table_version(table: BaseTable) -> None:
    region(table)
    build(table)
    faulty = FaultyStore(table.store)
    watched = reopened(table, faulty, SETTINGS)
    state = watched.state()
    requests = faulty.count()
    snapshot = read_snapshot(watched, state)
    assert isinstance(snapshot, pa.Table)
    assert snapshot.num_rows == 1
    assert faulty.count() == requests
    assert faulty.count(path=lambda path: path.startswith("_mem_wal")) == 0


def test_external_snapshot_is_published_anew_after_a_merge_gave_the_index_another_id(table: BaseTable) -> None:
    regions = [region(table) for _ in range(3)]
    build(table)
    merge_natively(table, people(5), {regions[0].region_id: 1})
    assert read_snapshot(table, table.state()) is None
    report = build(table)
    assert (report.outcome, report.plan.reason) == (JobOutcome.DONE, SnapshotReason.LOST)
    assert len(stored_rows(table)) == 3


@pytest.mark.req("BLD-21")
@pytest.mark.parametrize("place", PLACES)
def test_crash_at_any_place_leaves_a_table_that_the_next_build_completes(table: BaseTable, place: Failpoint) -> None:
    made = region(table)
    put_wal(table, made.region_id, 1, 2)
    with pytest.raises(SimulatedCrash):
        build(table, failpoints=ArmedFailpoints().arm(place))
    build(table)
    assert stored_rows(table)[made.region_id].wal_id_last_seen == 2
    assert build(table).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("IDX-03")
def test_merge_follows_the_manifests_while_the_snapshot_lags(table: BaseTable) -> None:
    write_native_generations(table.uri, NATIVE, [[Put(people(900))]])
    admin = Table.open(table.uri, settings=SETTINGS)
    admin.run(SnapshotRequest())
    write_native_generations(table.uri, NATIVE, [[Put(people(901))]])
    admin.run(MergeRequest())
    assert [each.generation for each in stored_rows(table)[NATIVE].flushed_generations] == [1]
    assert table.state().require_details().merged_generation(NATIVE) == 2
    assert table.state().num_rows == 4


@pytest.mark.req("BLD-21")
def test_admin_builds_under_a_lease_of_its_own(table: BaseTable) -> None:
    region(table)
    admin = Table.open(table.uri, settings=SETTINGS)
    assert admin.run(SnapshotRequest(dry_run=True)).outcome is JobOutcome.PLANNED
    assert admin.run(SnapshotRequest(), holder="run 1").outcome is JobOutcome.DONE
    assert admin.run(SnapshotRequest(), holder="run 2").outcome is JobOutcome.NOTHING_TO_DO
