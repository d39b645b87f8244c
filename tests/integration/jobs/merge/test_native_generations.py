"""Merging generations that pylance wrote gives exactly what pylance's reader showed before."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from memwal_core.format.paths import LEASES_DIRECTORY, LEDGER_DIRECTORY, RECORD_DIRECTORY
from memwal_core.jobs.merge.plan import Verdict
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region import drain
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table
from testkit.tables.native_regions import Delete, Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people

FIRST, SECOND = native_region_id(1), native_region_id(2)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([PEOPLE.field("id")]))


def two_regions(uri: str) -> None:
    make_people_table(uri, rows=people(*range(1, 21)))
    odd = [
        [Put(people(1, 3, 101, name="a1")), Put(people(1, name="a1-again"))],
        [Delete(keys(3, 101)), Put(people(5, 103, name="a2"))],
        [Put(people(101, name="a3")), Delete(keys(7, 103)), Put(people(1, name="a3"))],
    ]
    even = [
        [Put(people(2, 102, name="b1"))],
        [Put(people(2, name="b2")), Delete(keys(2)), Put(people(2, name="b2-back"))],
        [Delete(keys(4, 6, 102))],
    ]
    write_native_generations(uri, FIRST, odd)
    write_native_generations(uri, SECOND, even)


def scan_before(admin: Table) -> pa.Table:
    manifests = admin.opened.manifests.load_many(admin.opened.manifests.region_ids())
    return native_scan(admin.base.uri, manifests, PEOPLE.names, "id")


def base_rows(admin: Table) -> pa.Table:
    return lance.dataset(admin.base.uri).to_table().select(PEOPLE.names).sort_by("id")


@pytest.mark.req("MRG-01", "MRG-05", "MRG-08", "MRG-09")
def test_two_regions_with_tombstones_merge_to_what_the_native_reader_showed(tmp_path):
    two_regions(str(tmp_path / "t"))
    admin = Table.open(str(tmp_path / "t"))
    before = scan_before(admin)

    report = admin.run(MergeRequest())

    assert base_rows(admin).to_pydict() == before.to_pydict()
    assert report.outcome is JobOutcome.DONE
    assert [(region.merged_before, region.merged_after) for region in report.regions] == [(0, 3), (0, 3)]
    assert report.generations == 6
    assert all(region.verdict is Verdict.COMPLETE for region in report.regions)
    assert base_rows(admin).column("name")[0].as_py() == "a3"


@pytest.mark.req("MRG-03", "MRG-04")
@pytest.mark.parametrize("max_generations", [1, 2, 4])
def test_bounded_passes_reach_the_same_rows(tmp_path, max_generations):
    two_regions(str(tmp_path / "t"))
    settings = Settings(merge=MergeSettings(max_generations=max_generations))
    admin = Table.open(str(tmp_path / "t"), settings=settings)
    before = scan_before(admin)

    report = admin.run(MergeRequest())

    assert base_rows(admin).to_pydict() == before.to_pydict()
    assert report.passes >= 6 / max_generations
    assert {region.merged_after for region in report.regions} == {3}


@pytest.mark.req("MRG-17", "MRG-27")
def test_second_run_changes_neither_rows_nor_version(tmp_path):
    """Manifests and the snapshot still list what is merged."""
    two_regions(str(tmp_path / "t"))
    admin = Table.open(str(tmp_path / "t"))
    admin.run(SnapshotRequest())
    admin.run(MergeRequest())
    manifests = admin.opened.manifests
    assert all(manifests.load(region_id).flushed_generations for region_id in manifests.region_ids())
    version, rows = admin.base.state().version, base_rows(admin)

    report = admin.run(MergeRequest())

    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert report.outcome.exit_code == 3
    assert admin.base.state().version == version
    assert base_rows(admin).equals(rows)


@pytest.mark.req("MRG-17")
def test_generation_that_its_manifest_forgot_does_not_count_as_merged(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri)
    write_native_generations(uri, FIRST, [[Put(people(1))], [Put(people(2))]])
    admin = Table.open(uri)
    admin.run(SnapshotRequest())
    admin.opened.manifests.update(FIRST, lambda stored: drain(stored, {1}))

    assert admin.run(MergeRequest()).outcome is JobOutcome.BLOCKED

    assert admin.base.state().require_details().merged_generation(FIRST) == 0
    assert base_rows(admin).num_rows == 0


@pytest.mark.req("MRG-21")
def test_merge_deletes_no_object_of_the_regions(tmp_path):
    two_regions(str(tmp_path / "t"))
    admin = Table.open(str(tmp_path / "t"))
    objects = {info.path for info in admin.base.store.list_objects("_mem_wal")}

    admin.run(MergeRequest())

    found = {info.path for info in admin.base.store.list_objects("_mem_wal")}
    assert objects <= found
    own = (LEASES_DIRECTORY, LEDGER_DIRECTORY, RECORD_DIRECTORY)
    assert {path for path in found - objects if not path.startswith(own)} == set()


def test_dry_run_shows_the_plan_and_changes_nothing(tmp_path):
    two_regions(str(tmp_path / "t"))
    admin = Table.open(str(tmp_path / "t"))
    version = admin.base.state().version

    report = admin.run(MergeRequest(dry_run=True))

    assert report.outcome is JobOutcome.PLANNED
    assert report.plan.marks == {FIRST: 3, SECOND: 3}
    assert admin.base.state().version == version


def test_selected_region_is_merged_and_the_other_left(tmp_path):
    two_regions(str(tmp_path / "t"))
    admin = Table.open(str(tmp_path / "t"))

    report = admin.run(MergeRequest(regions={SECOND}))

    assert {region.region_id: (region.merged_after, region.verdict) for region in report.regions} == {
        FIRST: (0, Verdict.NOT_SELECTED),
        SECOND: (3, Verdict.COMPLETE),
    }


@pytest.mark.req("MRG-07")
def test_duplicate_key_inside_a_generation_keeps_the_later_row(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1))
    write_native_generations(uri, FIRST, [[Put(people(1, name="first")), Put(people(1, name="last"))]])
    admin = Table.open(uri)

    admin.run(MergeRequest())

    assert base_rows(admin).to_pydict()["name"] == ["last"]


@pytest.mark.req("MRG-19")
def test_generation_that_vanished_blocks_its_region_and_not_the_other(tmp_path):
    uri = str(tmp_path / "t")
    two_regions(uri)
    admin = Table.open(uri)
    lost = admin.opened.manifests.load(FIRST).flushed_generations[1].path
    admin.base.store.delete_directory(f"_mem_wal/{FIRST}/{lost}")

    report = admin.run(MergeRequest())

    assert report.outcome is JobOutcome.PARTIAL
    assert report.outcome.exit_code == 6
    by_id = {region.region_id: region for region in report.regions}
    assert by_id[FIRST].merged_after == 1
    assert by_id[FIRST].verdict is Verdict.MISSING
    assert lost in by_id[FIRST].evidence
    assert (by_id[SECOND].merged_after, by_id[SECOND].verdict) == (3, Verdict.COMPLETE)


@pytest.mark.req("MRG-19")
def test_lost_data_file_parks_its_region_and_not_the_other(tmp_path):
    uri = str(tmp_path / "t")
    two_regions(uri)
    admin = Table.open(uri)
    lost = admin.opened.manifests.load(FIRST).flushed_generations[0].path
    admin.base.store.delete_directory(f"_mem_wal/{FIRST}/{lost}/data")

    report = admin.run(MergeRequest())

    assert report.outcome is JobOutcome.PARTIAL
    by_id = {region.region_id: region for region in report.regions}
    assert (by_id[FIRST].merged_after, by_id[FIRST].verdict) == (0, Verdict.DAMAGED)
    assert f"{lost}/data/" in by_id[FIRST].evidence
    assert "it is missing" in by_id[FIRST].evidence
    assert (by_id[SECOND].merged_after, by_id[SECOND].verdict) == (3, Verdict.COMPLETE)
