"""Garbage collection of tables that our own writer wrote."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.format.paths import LEASES_DIRECTORY, LEDGER_DIRECTORY, region_directory
from memwal_core.jobs.gc.items import Action, FreeingRule, Gate, Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region import RegionManifest
from memwal_core.settings import GcSettings, WalCollection
from memwal_core.table import Table
from memwal_core.writer.region_writer import RegionWriter
from testkit.faults.faulty_store import FaultyStore, Moment
from testkit.faults.faulty_store import Rule as Fault
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import (
    MERGED_ROWS,
    OLD_S,
    SHARING,
    collect,
    drop_old_versions,
    gc_admin,
    later,
    make_merged_table,
    only_region,
    without_links,
    write_generations,
)
from testkit.tables.people import make_people_table, people


@pytest.fixture
def uri(tmp_path) -> str:
    return make_merged_table(str(tmp_path / "t")).uri


def objects(admin: Table, kind: str = "") -> list[str]:
    home = f"{region_directory(only_region(admin))}/"
    paths = (info.path.removeprefix(home) for info in admin.base.store.list_objects(home.rstrip("/")))
    return sorted(path for path in paths if kind in path)


def unrecorded(admin: Table) -> list[str]:
    """Return every object of the table but what jobs leave of their own runs: leases and the ledger."""
    paths = (info.path for info in admin.base.store.list_objects(""))
    return sorted(path for path in paths if not path.startswith((LEASES_DIRECTORY, LEDGER_DIRECTORY)))


def is_manifest(path: str) -> bool:
    return "/manifest/" in path


@pytest.mark.req("GC-01", "GC-22", "D-07", "D-08")
def test_everything_merged_is_collected_and_every_row_stays(uri):
    admin = gc_admin(uri)

    report = collect(admin)

    assert report.outcome is JobOutcome.DONE
    assert {kind.value: tally.items for kind, tally in report.done.items()} == {
        "flushed_memtable": 3,
        "directory": 3,
        "wal_entry": 2,
    }
    assert report.failures == ()
    assert admin.opened.manifests.load(only_region(admin)).flushed_generations == ()
    assert objects(admin, "_gen_") == []
    assert len(objects(admin, "wal/")) == 1
    assert lsm_view(admin.base) == MERGED_ROWS


@pytest.mark.req("GC-22", "GC-30")
def test_second_run_finds_nothing_to_do(uri):
    admin = gc_admin(uri)
    collect(admin)
    before = unrecorded(admin)

    report = collect(admin)

    assert set(report.done) <= {Kind.LEDGER_VERSION}  # Of the first run, which is long ago.
    assert unrecorded(admin) == before


@pytest.mark.req("MAN-19", "GC-25")
def test_drain_changes_the_recorded_generations_and_nothing_else(uri):
    admin = gc_admin(uri)
    before = admin.opened.manifests.load(only_region(admin))

    collect(admin)

    after = admin.opened.manifests.load(before.region_id)
    differing = {
        item.name for item in fields(RegionManifest) if getattr(before, item.name) != getattr(after, item.name)
    }
    assert differing - {"commit_id"} == {"version", "flushed_generations"}
    assert (after.writer_epoch, after.replay_after_wal_id, after.current_generation) == (1, 3, 4)


@pytest.mark.req("GC-20", "D-33", "LEASE-32")
def test_manifest_comes_first_then_directories_then_wal_entries(uri):
    store = FaultyStore(gc_admin(uri).base.store)
    admin = gc_admin(uri, store=store)

    collect(admin)

    steps = [
        "drain" if call.operation == "put_if_absent" else "wal" if "/wal/" in call.path else "directory"
        for call in store.calls
        if (call.operation in ("delete", "delete_directory") and "_leases" not in call.path)
        or (call.operation == "put_if_absent" and "/manifest/" in call.path)
    ]
    assert steps == ["drain", *["directory"] * 3, *["wal"] * 2]


def test_base_table_is_synced_before_the_drain(uri):
    store = FaultyStore(gc_admin(uri).base.store)

    collect(gc_admin(uri, store=store))

    steps = [
        call.path.partition("/")[0]
        for call in store.calls
        if call.operation in ("sync_objects", "sync_directory")
        or (call.operation == "put_if_absent" and "/manifest/" in call.path)
    ]
    assert {"data", "_versions", "_transactions"} <= set(steps[: steps.index("_mem_wal")])


@pytest.mark.req("GC-28")
def test_dry_run_changes_nothing_and_lists_what_a_run_then_collects(uri):
    admin = gc_admin(uri)
    before = objects(admin)

    planned = admin.run(GcRequest())
    assert (planned.outcome, objects(admin)) == (JobOutcome.PLANNED, before)
    collect(admin)

    # The WAL entries are shown as needed until the directories that consist of them are gone.
    drained = [item for item in planned.plan.free if item.action is Action.DRAIN]
    assert len(drained) == 3
    assert all(item.reason is FreeingRule.COVERED for item in drained)
    gone = set(before) - set(objects(admin))
    assert {path.partition("/")[0] for path in gone if "_gen_" in path} == {
        item.path.rpartition("/")[2] for item in drained
    }


@pytest.mark.req("GC-28")
def test_dry_run_after_the_grace_period_equals_the_deletions(uri):
    collect(gc_admin(uri, settings=GcSettings(collect_wal=WalCollection.ALL), clock=later(0)))
    admin = gc_admin(uri)
    before = set(objects(admin))
    home = f"{region_directory(only_region(admin))}/"

    planned = {item.path.removeprefix(home) for item in admin.run(GcRequest()).plan.free}
    collect(admin)

    gone = before - set(objects(admin))
    assert {path.partition("/")[0] if "_gen_" in path else path for path in gone} == planned
    assert len(planned) == 5


def test_report_is_json_with_every_object(uri):
    report = gc_admin(uri).run(GcRequest())

    document = json.loads(json.dumps(report.to_dict()))

    assert document["outcome"] == "planned"
    assert document["plan"]["free"]["flushed_memtable"]["items"] == 3
    assert document["plan"]["kept"]["wal_entry"][Gate.REFERENCED.value]["items"] == 2
    assert len(document["plan"]["items"]) == len(report.plan.items)
    assert all(item["reason"] for item in document["plan"]["items"])


@pytest.mark.req("GC-23", "LEASE-37")
def test_reader_that_planned_before_the_drain_finishes_within_the_grace_period(uri):
    clock = later(0)
    admin = gc_admin(uri, settings=GcSettings(collect_wal=WalCollection.ALL), clock=clock)
    path = admin.opened.manifests.load(only_region(admin)).flushed_generations[0].path
    reader = f"{uri}/{region_directory(only_region(admin))}/{path}"

    report = collect(admin)
    assert lance.dataset(reader).count_rows() == 2
    assert any("later run" in note for note in report.notes)
    assert report.due_at == clock.now() + timedelta(seconds=600)
    assert report.to_dict()["due_at"] == report.due_at.isoformat()
    clock.advance(599)
    assert admin.run(GcRequest()).due_at is not None
    assert collect(admin).plan.kept_by_gate()[Kind.DIRECTORY][Gate.GRACE.value].items == 3
    assert lance.dataset(reader).count_rows() == 2
    clock.advance(3600)
    assert collect(admin).due_at is None

    assert objects(admin, "_gen_") == []


@pytest.mark.req("GC-23")
def test_run_that_waits_deletes_what_it_drained(uri):
    clock = later(60)
    admin = gc_admin(uri, settings=GcSettings(), clock=clock)

    admin.run(GcRequest(dry_run=False, wait=True))

    assert clock.sleeps == [600]
    assert objects(admin, "_gen_") == []


def test_wal_collection_can_be_switched_off(uri):
    admin = gc_admin(uri, settings=GcSettings(grace_s=0, collect_wal=WalCollection.NONE))

    report = collect(admin)

    assert len(objects(admin, "wal/")) == 3
    assert any("gc.collect_wal" in note for note in report.notes)


def test_the_wal_of_our_writers_is_collected_by_default(uri):
    admin = gc_admin(uri, settings=GcSettings(grace_s=0))

    report = collect(admin)

    assert len(objects(admin, "wal/")) == 1
    assert not any("gc.collect_wal" in note for note in report.notes)


def test_flushed_memtables_that_own_their_files_outlive_their_wal_entries(tmp_path):
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(table, [1, 5], [6], [5, 7], name="a", owned=True)
    admin = gc_admin(table.uri)

    collect(admin)

    assert len(objects(admin, "wal/")) == 1
    assert len({path.partition("/")[0] for path in objects(admin, "_gen_")}) == 3
    assert lsm_view(admin.base) == MERGED_ROWS
    admin.run(MergeRequest())
    assert lsm_view(admin.base) == MERGED_ROWS


@pytest.mark.req("WRT-86", "GC-10")
def test_entries_of_a_fenced_writer_stay_until_they_are_flushed_and_merged(uri):
    admin = gc_admin(uri)
    region = only_region(admin)
    RegionWriter.open(admin.base, region).put(people(13, name="fenced"))
    successor = RegionWriter.open(without_links(admin.base).with_settings(SHARING), region)
    successor.put(people(14, name="successor"))

    collect(admin)
    assert len(objects(admin, "wal/")) == 2
    assert lsm_view(admin.base) == {**MERGED_ROWS, 13: "fenced", 14: "successor"}
    successor.flush()
    collect(admin)
    assert len(objects(admin, "wal/")) == 2
    admin.run(MergeRequest())
    drop_old_versions(uri)
    collect(admin)

    assert len(objects(admin, "wal/")) == 1
    assert lsm_view(admin.base) == {**MERGED_ROWS, 13: "fenced", 14: "successor"}


def test_reopened_writer_replays_nothing_and_goes_on(uri):
    admin = gc_admin(uri)
    collect(admin)

    writer = RegionWriter.open(admin.base, only_region(admin))
    assert writer.memtable.num_rows == 0
    writer.put(people(30, name="new"))
    writer.flush()
    admin.run(MergeRequest())

    assert lsm_view(admin.base) == {**MERGED_ROWS, 30: "new"}


@pytest.mark.req("GC-12", "GC-13", "D-26")
@pytest.mark.parametrize("hint", [b'{"version": 3}', b"rubbish", None], ids=["stale", "damaged", "missing"])
def test_old_manifest_versions_go_and_the_newest_is_found_from_any_hint(uri, hint):
    admin = gc_admin(uri, settings=GcSettings(grace_s=0, manifest_retention=2))
    region = only_region(admin)
    path = f"{region_directory(region)}/manifest/version_hint.json"
    admin.base.store.delete(path)
    if hint is not None:
        admin.base.store.put(path, hint)

    collect(admin)

    newest = admin.opened.manifests.load(region)
    assert admin.opened.manifests.versions(region) == [newest.version - n for n in (2, 1, 0)]
    assert json.loads(admin.base.store.get(path))["version"] == newest.version


@pytest.mark.req("GC-24")
def test_flush_between_plan_and_drain_is_kept(uri):
    plain = gc_admin(uri)
    writer = RegionWriter.open(plain.base, only_region(plain))
    writer.put(people(40, name="new"))
    store = FaultyStore(plain.base.store)
    store.add(
        Fault(
            lambda _: writer.flush(),
            Moment.BEFORE,
            frozenset({"put_if_absent"}),
            path=is_manifest,
        )
    )

    report = collect(gc_admin(uri, store=store))

    assert report.failures == ()
    manifest = plain.opened.manifests.load(only_region(plain))
    assert [each.generation for each in manifest.flushed_generations] == [4]
    assert lsm_view(plain.base) == {**MERGED_ROWS, 40: "new"}


@pytest.mark.req("GC-24")
def test_catch_up_withdrawn_between_plan_and_drain_stops_the_drain(uri):
    plain = gc_admin(uri)
    store = FaultyStore(plain.base.store)
    store.add(
        Fault(
            lambda _: lance.dataset(uri).create_scalar_index("name", "BTREE", name="late"),
            Moment.BEFORE,
            frozenset({"sync_objects"}),
        )
    )
    # The new index has an entry of its own; its withdrawal is what a compaction does.
    store.add(
        Fault(
            lambda _: plain.base.update_details(
                lambda details: type(details)(**{**_as_dict(details), "index_catchup": {}})
            ),
            Moment.AFTER,
            frozenset({"sync_objects"}),
        )
    )

    report = collect(gc_admin(uri, store=store))

    assert Kind.FLUSHED_MEMTABLE not in report.done
    assert len(plain.opened.manifests.load(only_region(plain)).flushed_generations) == 3


def _as_dict(details: object) -> dict[str, object]:
    return {item.name: getattr(details, item.name) for item in fields(details)}


@pytest.mark.req("GC-14", "GC-15", "LEASE-31")
def test_directory_of_a_failed_flush_is_never_merged_and_goes_when_old(uri):
    plain = gc_admin(uri)
    region = only_region(plain)
    store = FaultyStore(plain.base.store)
    writer = RegionWriter.open(type(plain.base).open(uri, store=store), region)
    writer.put(people(50, name="kept"))
    store.fail("put_if_absent", path=is_manifest, times=None)
    with pytest.raises(Exception, match="did not"):
        writer.flush()
    store.heal()
    writer.flush()
    recorded = plain.opened.manifests.load(region).flushed_generations[-1].path
    (stray,) = {path.partition("/")[0] for path in objects(plain, "_gen_4")} - {recorded}
    # Its rows are those of the recorded one, so that only its absence shows whether it was read.
    shutil.rmtree(Path(uri, region_directory(region), stray, "data"))
    assert lsm_view(plain.base) == {**MERGED_ROWS, 50: "kept"}

    plain.run(MergeRequest())
    drop_old_versions(uri)
    young = collect(gc_admin(uri, settings=GcSettings(grace_s=0), clock=later(0)))
    assert young.plan.kept_by_gate()[Kind.DIRECTORY][Gate.YOUNG.value].items == 1
    old = collect(gc_admin(uri))

    assert any(item.reason is FreeingRule.ORPHAN for item in old.plan.items)
    assert objects(plain, "_gen_") == []
    assert lsm_view(plain.base) == {**MERGED_ROWS, 50: "kept"}


@pytest.mark.req("GC-11", "GC-16")
def test_collection_in_the_middle_of_a_flush_leaves_its_directory(uri):
    plain = gc_admin(uri)
    region = only_region(plain)
    store = FaultyStore(plain.base.store)
    writer = RegionWriter.open(type(plain.base).open(uri, store=store), region)
    writer.put(people(60, name="flushing"))
    reports = []
    store.add(
        Fault(
            lambda _: reports.append(collect(gc_admin(uri, clock=later(OLD_S)))),
            Moment.BEFORE,
            frozenset({"put_if_absent"}),
            path=is_manifest,
        )
    )

    writer.flush()

    kept = reports[0].plan.kept_by_gate()
    assert kept[Kind.DIRECTORY][Gate.MAY_BE_RECORDED.value].items == 1
    assert kept[Kind.WAL_ENTRY][Gate.NOT_FLUSHED.value].items == 1
    assert [each.generation for each in plain.opened.manifests.load(region).flushed_generations] == [4]
    assert lsm_view(plain.base) == {**MERGED_ROWS, 60: "flushing"}


@pytest.mark.req("GC-27")
def test_foreign_files_stay(uri):
    admin = gc_admin(uri)
    home = region_directory(only_region(admin))
    foreign = [f"{home}/notes.txt", f"{home}/wal/readme.md", f"{home}/backup/x", "_mem_wal/notes.txt", "notes.txt"]
    for path in foreign:
        admin.base.store.put(path, b"mine")

    report = collect(admin)

    assert report.outcome is JobOutcome.DONE
    assert all(admin.base.store.head(path) for path in foreign)
    assert sorted(item.path for item in report.plan.items if item.kind is Kind.UNKNOWN) == sorted(foreign[:3])


def test_staged_manifest_of_a_refused_commit_goes(uri):
    admin = gc_admin(uri)
    newest = admin.base.manifests.locate(admin.base.state().version).path
    staged = [f"{newest}-3f2b8c1e-0000-4000-8000-00000000000{n}" for n in (1, 2)]
    for path in staged:
        admin.base.store.put(path, b"staged")

    report = collect(admin)

    assert report.done[Kind.LEFTOVER].items == 2
    assert not any(admin.base.store.head(path) for path in staged)


def test_old_lease_versions_go_and_the_lease_still_works(uri):
    admin = gc_admin(uri, settings=GcSettings(grace_s=0, manifest_retention=2))

    reports = [collect(admin) for _ in range(5)]

    assert sum(report.done[Kind.LEASE_VERSION].items for report in reports if Kind.LEASE_VERSION in report.done) >= 4
    assert all(report.failures == () for report in reports)
    assert len(list(admin.base.store.list_objects("_mem_wal/_leases/gc"))) <= 6


def test_two_regions_are_collected_and_a_selection_is_respected(tmp_path):
    table = make_people_table(str(tmp_path / "two"), buckets=2)
    write_generations(table, list(range(20)), list(range(10)), name="x")
    Table.open(table.uri).run(MergeRequest())
    drop_old_versions(table.uri)
    admin = gc_admin(table.uri)
    first, second = admin.opened.manifests.region_ids()

    report = admin.run(GcRequest(regions={first}, dry_run=False))

    assert {item.region_id for item in report.plan.items} <= {first, None}
    assert admin.opened.manifests.load(first).flushed_generations == ()
    assert len(admin.opened.manifests.load(second).flushed_generations) == 2
