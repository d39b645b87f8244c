"""Relocation: a copied or moved table is at home, after its files were proven to be its own (S1)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from memwal_core.errors import FrozenError
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import (
    INDEX_DIRECTORY,
    RESERVATIONS_DIRECTORY,
    generation_path,
    manifest_path,
    region_directory,
    wal_entry_path,
)
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate import run as places
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.relocate.run import relocate
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.table import Table
from testkit.faults.damage import Vandal
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.tables.people import make_people_table, people
from tests.integration.jobs.copies.places import (
    FLUSHED,
    RIGHT,
    SETTINGS,
    Place,
    in_base,
    make_place,
    make_table,
    seen,
)
from tests.integration.jobs.copies.places import seen_by_pylance as by_pylance


@pytest.fixture(params=["links", "no links", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    s3 = request.getfixturevalue("s3") if request.param == "s3" else None
    return make_place(request.param, tmp_path, s3)


@pytest.fixture
def named(tmp_path: Path) -> Place:
    """A place in which flushed MemTables name the WAL."""
    return make_place("no links", tmp_path, None)


def test_copied_table_is_at_home_once_and_for_every_reader(place: Place) -> None:
    make_table(place)
    place.copy("people.lance", "copy.lance")
    place.remove("people.lance")
    copy = place.open("copy.lance")
    names_addresses = not place.has_links or bool(place.options)
    if names_addresses:
        with pytest.raises(Exception, match=r"(?i)not found|NoSuchKey"):
            by_pylance(copy)
    with pytest.raises(FrozenError):
        copy.run(MergeRequest())

    planned = copy.run(RelocateRequest(dry_run=True))
    report = copy.run(RelocateRequest(reason="moved to the new disk"))

    assert planned.outcome is JobOutcome.PLANNED
    assert report.outcome is JobOutcome.DONE
    assert len(report.plan.rebases) == (3 if names_addresses else 0)
    assert (sum(each.entries for each in report.plan.examined) > 0) == names_addresses
    record = copy.opened.freezes.load()
    assert record is not None
    [freeze] = record.freezes
    assert freeze.ended is not None
    assert (freeze.ended.choice.value, freeze.ended.reason) == ("accept-copy", "moved to the new disk")
    assert copy.run(RelocateRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert by_pylance(copy) == FLUSHED
    assert seen(copy) == RIGHT
    assert place.open("copy.lance").run(MergeRequest()).outcome is JobOutcome.DONE
    assert in_base(copy) == FLUSHED


def test_original_goes_on_after_its_copy_was_relocated(place: Place) -> None:
    table = make_table(place)
    place.copy("people.lance", "copy.lance")
    assert place.open("copy.lance").run(RelocateRequest()).outcome is JobOutcome.DONE
    assert table.run(RelocateRequest()).outcome is JobOutcome.NOTHING_TO_DO
    with table.writer(takeover="fence") as writer:
        writer.put(people(50, name="of the original"))
        writer.flush()
    assert place.open("people.lance").run(MergeRequest()).outcome is JobOutcome.DONE
    assert seen(place.open("copy.lance")) == RIGHT


def test_table_whose_wal_is_another_history_is_refused_and_left_as_it_is(named: Place) -> None:
    make_table(named)
    named.copy("people.lance", "copy.lance")
    copy = named.open("copy.lance")
    manifest = copy.opened.manifests.load_many(copy.opened.manifests.region_ids())[0]
    store = copy.base.store
    position = manifest.replay_after_wal_id
    path = wal_entry_path(manifest.region_id, position, ".lance")
    data = bytearray(store.get(path))
    data[len(data) // 2] ^= 1
    store.put(path, bytes(data))
    before = {each.path for each in store.list_objects("") if "_leases" not in each.path and "_ledger" not in each.path}

    report = copy.run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    assert f"region {manifest.region_id} generation" in report.why()
    after = {each.path for each in store.list_objects("") if "_leases" not in each.path and "_ledger" not in each.path}
    assert after == before


@pytest.mark.parametrize("left_behind", [1, 2, 3])
def test_copy_that_left_wal_entries_behind_is_refused_and_left_as_it_is(named: Place, left_behind: int) -> None:
    """A writer filled the gap, and entries behind it, which are older, replaced its rows."""
    table = make_table(named)
    with table.writer(takeover="fence") as writer:
        for number in range(left_behind + 1):
            writer.put(people(5, name=f"in the WAL {number}"))
    named.copy("people.lance", "copy.lance")
    copy = named.open("copy.lance")
    wals = {each: Vandal(copy.base).wal_ids(each, ".lance") for each in copy.opened.manifests.region_ids()}
    region_id, last = max(((each, wal_ids[-1]) for each, wal_ids in wals.items()), key=lambda found: found[1])
    for wal_id in range(last - left_behind, last):
        copy.base.store.delete(wal_entry_path(region_id, wal_id, ".lance"))

    report = copy.run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    assert f"region {region_id} WAL entry {last - left_behind}: it is missing" in report.why()
    assert copy.opened.freezes.active() == ()
    lost = tuple(f"{region_id}:wal-{wal_id}" for wal_id in range(last - left_behind, last))
    assert named.open("copy.lance").run(RepairRequest(accept_loss=lost)).outcome is JobOutcome.DONE
    assert named.open("copy.lance").run(RelocateRequest()).outcome is JobOutcome.DONE
    assert seen(copy) == {**RIGHT, 5: f"in the WAL {left_behind}"}


def test_copy_with_regions_that_cannot_be_read_is_refused_with_the_name_of_each(place: Place) -> None:
    """An error named the first alone, and told people to repair what was to be copied again."""
    make_table(place)
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    regions = copy.opened.manifests.region_ids()
    for manifest in copy.opened.manifests.load_many(regions):
        copy.base.store.delete(manifest_path(manifest.region_id, manifest.version))
    before = {each.path for each in copy.base.store.list_objects("_mem_wal/_record")}

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    for region_id in regions:
        assert f"region {region_id}: _mem_wal/{region_id}/manifest/" in report.why()
    assert any("`memwal backup`" in each for each in report.view().notes)
    assert {each.path for each in copy.base.store.list_objects("_mem_wal/_record")} == before


def test_copy_whose_base_is_older_than_its_regions_is_refused_with_the_missing_generation(place: Place) -> None:
    """It was called whole, although no merge could ever go on."""
    make_table(place)
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    manifest = copy.opened.manifests.load_many(copy.opened.manifests.region_ids())[0]
    [*_, last] = manifest.flushed_generations
    later = replace(manifest, flushed_generations=())
    copy.base.store.put(manifest_path(manifest.region_id, manifest.version), encode_manifest(later))

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    gap = f"region {manifest.region_id}: generation {last.generation} is neither merged nor recorded"
    assert report.plan.damage == (f"{gap}; run `memwal repair`",)
    assert any("copy it again" in each for each in report.view().notes)
    assert copy.opened.freezes.active() == ()


def test_copy_whose_record_is_newer_than_its_base_is_to_be_copied_again(named: Place) -> None:
    """People were only told to decide what had happened to the table; nothing had."""
    table = make_table(named)
    named.copy("people.lance", "copy.lance")
    table.run(MergeRequest())
    copied, original = Path(named.uri("copy.lance")), Path(table.uri)
    shutil.copytree(original / "_mem_wal" / "_record", copied / "_mem_wal" / "_record", dirs_exist_ok=True)

    report = named.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    assert report.plan.damage == ()
    assert any("progress-went-back" in each for each in report.plan.decisions)
    assert any("copy it again" in each for each in report.view().notes)


@pytest.mark.parametrize("directory", ["data", "_deletions"])
def test_copy_that_lacks_files_of_the_base_table_is_refused_with_the_name_of_each(place: Place, directory: str) -> None:
    """It was copied while old versions were removed; it was called whole, and could not be scanned."""
    table = make_table(place)
    lance.dataset(table.uri, storage_options=dict(place.options) or None).delete("id = 3")
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    paths = [each.path for each in copy.base.store.list_objects(directory)]
    for path in paths:
        copy.base.store.delete(path)

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    assert report.plan.damage
    assert set(report.plan.damage) <= {f"{path}: it is missing" for path in paths}
    assert copy.opened.freezes.active() == ()


@pytest.mark.parametrize("lost", ["all", "one"])
def test_copy_that_lacks_files_of_an_index_is_refused_with_its_name(place: Place, lost: str) -> None:
    """It was called whole, and lookups by the indexed key failed."""
    table = make_table(place)
    lance.dataset(table.uri, storage_options=dict(place.options) or None).create_scalar_index("id", "BTREE")
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    paths = [each.path for each in copy.base.store.list_objects(INDEX_DIRECTORY)]
    for path in paths[: None if lost == "all" else 1]:
        copy.base.store.delete(path)

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    [damage] = report.plan.damage
    assert damage.startswith(f"{paths[0].rpartition('/')[0]}: ")
    assert ("it is missing" in damage) == (lost == "all")


def test_copy_that_lacks_a_file_of_a_flushed_memtable_is_refused_with_its_name(tmp_path: Path) -> None:
    """One that owns its files was only opened, which reads none of them."""
    place = make_place("links", tmp_path, None)
    make_table(place)
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    manifest = copy.opened.manifests.load_many(copy.opened.manifests.region_ids())[0]
    [*_, last] = manifest.flushed_generations
    own = f"{generation_path(manifest.region_id, last.path)}/data"
    [path, *_] = [each.path for each in copy.base.store.list_objects(own)]
    copy.base.store.delete(path)

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    subject = f"region {manifest.region_id} generation {last.generation}"
    assert report.plan.damage == (f"{subject}: {path}: it is missing",)


def test_copy_without_a_region_that_only_the_snapshot_names_is_refused(place: Place) -> None:
    """It was called at home, and no reader could read it."""
    make_people_table(place.uri("people.lance"), buckets=2, storage_options=place.options, settings=SETTINGS)
    with place.open("people.lance").writer() as writer:
        writer.put(people(*range(20), name="in the WAL"))
    place.open("people.lance").run(SnapshotRequest())
    place.copy("people.lance", "copy.lance")
    copy = place.open("copy.lance")
    left_behind, _ = copy.opened.manifests.region_ids()
    copy.base.store.delete_directory(region_directory(left_behind))
    copy.base.store.delete_directory(RESERVATIONS_DIRECTORY)  # Other clients mark no region's creation.

    report = place.open("copy.lance").run(RelocateRequest())

    assert report.outcome is JobOutcome.BLOCKED
    assert f"region {left_behind}: {region_directory(left_behind)}: " in report.why()
    place.copy(f"people.lance/{region_directory(left_behind)}", f"copy.lance/{region_directory(left_behind)}")
    assert place.open("copy.lance").run(RelocateRequest()).outcome is JobOutcome.DONE
    assert seen(copy) == dict.fromkeys(range(20), "in the WAL")


def test_flushed_memtables_without_a_digest_are_relocated_by_sizes_and_checksums(named: Place) -> None:
    """As those that were written before digests existed."""
    table = make_table(named)
    for manifest in table.opened.manifests.load_many(table.opened.manifests.region_ids()):
        bare = tuple(replace(each, wal_digest=None) for each in manifest.flushed_generations)
        content = encode_manifest(replace(manifest, flushed_generations=bare))
        table.base.store.put(manifest_path(manifest.region_id, manifest.version), content)
    shutil.rmtree(Path(table.uri, "_mem_wal", "_record"))
    named.copy("people.lance", "copy.lance")
    named.remove("people.lance")
    copy = named.open("copy.lance")

    report = copy.run(RelocateRequest())

    assert report.outcome is JobOutcome.DONE
    assert {each.is_proven for each in report.plan.examined} == {False}
    assert "no digest" in report.view().grids[0].rows[0][1]
    assert by_pylance(copy) == FLUSHED


def test_table_frozen_for_another_cause_is_left_to_thaw(named: Place) -> None:
    make_table(named).freeze("look first", by="ann")
    named.copy("people.lance", "copy.lance")
    copy = named.open("copy.lance")
    report = copy.run(RelocateRequest())
    assert report.outcome is JobOutcome.BLOCKED
    assert "by-hand" in report.why()
    assert report.view().notes == tuple(f"in the way: {each}" for each in report.plan.decisions)
    assert [each.cause.value for each in copy.opened.freezes.active()] == ["by-hand"]


PLACES = [value for name, value in vars(places).items() if name.startswith("RELOCATE_")]


@pytest.mark.parametrize("failpoint", PLACES)
def test_relocation_killed_at_a_place_is_finished_by_the_next(named: Place, failpoint: Failpoint) -> None:
    make_table(named)
    named.copy("people.lance", "copy.lance")
    named.remove("people.lance")
    copy = named.open("copy.lance")
    with pytest.raises(FrozenError):
        copy.run(MergeRequest())
    failpoints = ArmedFailpoints().arm(failpoint)
    with pytest.raises(SimulatedCrash):
        relocate(JobContext(copy.opened, failpoints=failpoints), RelocateRequest())
    assert failpoints.hits[failpoint] == 1
    again = named.open("copy.lance").run(RelocateRequest())
    assert (again.outcome is JobOutcome.NOTHING_TO_DO) == (failpoint == places.RELOCATE_RECORDED)
    copy = named.open("copy.lance")
    assert copy.run(RelocateRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert by_pylance(copy) == FLUSHED
    assert copy.run(MergeRequest()).outcome is JobOutcome.DONE
    assert seen(Table.open(copy.uri)) == RIGHT
