"""What holds garbage collection back: time travel, frozen tables, hostile manifests, unsafe settings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import retained_versions
from memwal_core.coordination.freeze import Choice
from memwal_core.errors import FrozenError, InvalidRequestError
from memwal_core.format.paths import manifest_path, region_directory
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.jobs.gc.items import Gate, Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.settings import GcSettings
from memwal_core.table import Table
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import (
    MERGED_ROWS,
    collect,
    drop_old_versions,
    gc_admin,
    make_merged_table,
    only_region,
    write_generations,
)
from testkit.tables.people import make_people_table, people


def recorded(admin: Table) -> list[int]:
    return [each.generation for each in admin.opened.manifests.load(only_region(admin)).flushed_generations]


def files(uri: str) -> set[str]:
    return {
        str(path)
        for path in Path(uri, "_mem_wal").rglob("*")
        if path.is_file() and not {"_leases", "_ledger", "_record"} & set(path.parts)
    }


@pytest.fixture
def steps(tmp_path) -> str:
    """Merged in steps: versions 2 (0), 3 (1), 4 (2), 5 (3)."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    for name, ids in (("a", [1, 5]), ("b", [6]), ("c", [5, 7])):
        write_generations(table, ids, name=name)
        Table.open(table.uri).run(MergeRequest())
    return table.uri


@pytest.mark.req("GC-17", "GC-18", "GC-29")
def test_every_retained_version_stays_readable_and_gives_up_what_it_held(steps):
    admin = gc_admin(steps)
    expected = lsm_view(admin.base)
    dataset = lance.dataset(steps)
    dataset.tags.create("audit", 3)

    assert set(collect(admin).done) <= {Kind.LEDGER_VERSION}
    assert recorded(admin) == [1, 2, 3]
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)
    collect(admin)

    assert recorded(admin) == [2, 3]
    for version in retained_versions(admin.base, 4):
        assert lsm_view(admin.base, version.version) == expected
    dataset.tags.delete("audit")
    drop_old_versions(steps)
    collect(admin)
    assert recorded(admin) == []
    assert lsm_view(admin.base) == expected


@pytest.mark.req("GC-17", "GC-19")
def test_restore_to_any_retained_version_loses_no_row(steps):
    admin = gc_admin(steps)
    expected = lsm_view(admin.base)
    lance.dataset(steps).tags.create("audit", 4)
    drop_old_versions(steps)
    collect(admin)
    assert recorded(admin) == [3]

    lance.dataset(steps, version=4).restore()
    assert admin.base.state().details.merged_generation(only_region(admin)) == 2
    with pytest.raises(FrozenError):
        admin.run(MergeRequest())
    admin.thaw(Decision(Choice.MERGE_AGAIN, "someone"))
    admin.run(MergeRequest())

    assert lsm_view(admin.base) == expected
    assert lance.dataset(steps).count_rows() == len(expected)


def test_progress_that_went_back_freezes_the_region(steps):
    admin = gc_admin(steps)
    lance.dataset(steps, version=3).restore()
    before = files(steps)

    with pytest.raises(FrozenError) as frozen:
        collect(admin)

    assert frozen.value.exit_code == 8
    assert frozen.value.facts["causes"] == ["progress-went-back"]
    assert files(steps) == before


def test_overwritten_table_is_frozen(steps):
    lance.write_dataset(people(1), steps, mode="overwrite")
    before = files(steps)

    with pytest.raises(FrozenError, match="the MemWAL index is gone"):
        collect(gc_admin(steps))

    assert files(steps) == before


def test_emptied_base_table_keeps_its_flushed_memtables(tmp_path):
    uri = make_merged_table(str(tmp_path / "t")).uri
    lance.dataset(uri).delete("true")
    drop_old_versions(uri)
    admin = gc_admin(uri)

    report = collect(admin)

    assert report.plan.kept_by_gate()[Kind.FLUSHED_MEMTABLE][Gate.EMPTY_BASE.value].items == 3
    assert recorded(admin) == [1, 2, 3]


@pytest.mark.req("GC-03", "GC-04")
def test_flushed_memtables_stay_until_a_new_index_has_caught_up(tmp_path):
    uri = str(tmp_path / "t")
    table = make_people_table(uri, rows=people(*range(50)), buckets=1)
    lance.dataset(uri).create_scalar_index("score", "BTREE", name="by_score")
    write_generations(table, [1, 60], name="a")
    admin = gc_admin(uri)
    admin.run(MergeRequest())
    drop_old_versions(uri)

    assert collect(admin).plan.kept_by_gate()[Kind.FLUSHED_MEMTABLE][Gate.INDEX_BEHIND.value].items == 1
    lance.dataset(uri).optimize.optimize_indices(index_names=["by_score"])
    drop_old_versions(uri)
    collect(admin)

    assert recorded(admin) == []


@pytest.mark.req("GC-27")
@pytest.mark.parametrize("path", ["../victim", "/etc", "wal", "manifest", "..", "a/b", "", "x_gen_1/../../victim"])
def test_hostile_manifest_never_leads_outside_the_region(tmp_path, path):
    uri = make_merged_table(str(tmp_path / "t")).uri
    admin = gc_admin(uri)
    region = only_region(admin)
    victim = Path(uri, "_mem_wal", "victim", "data")
    victim.parent.mkdir()
    victim.write_text("precious")
    stored = admin.opened.manifests.load(region)
    wire = pb.RegionManifest.FromString(admin.base.store.get(manifest_path(region, stored.version)))
    wire.flushed_generations[0].path = path
    wire.version = stored.version + 1
    admin.base.store.put(manifest_path(region, stored.version + 1), wire.SerializeToString())
    before = files(uri)

    report = collect(admin)

    assert report.outcome is JobOutcome.PARTIAL
    assert "outside its region directory" in report.plan.freezes.regions[region]
    assert files(uri) == before
    assert victim.read_text() == "precious"


@pytest.mark.req("GC-27")
def test_linked_directory_of_a_flushed_memtable_is_not_followed(tmp_path):
    uri = make_merged_table(str(tmp_path / "t")).uri
    admin = gc_admin(uri)
    home = Path(uri, region_directory(only_region(admin)))
    name = admin.opened.manifests.load(only_region(admin)).flushed_generations[0].path
    elsewhere = tmp_path / "elsewhere"
    (home / name).rename(elsewhere)
    (home / name).symlink_to(elsewhere, target_is_directory=True)
    before = sorted(elsewhere.rglob("*"))

    collect(admin)
    collect(admin)

    assert sorted(elsewhere.rglob("*")) == before
    assert lsm_view(admin.base) == MERGED_ROWS


@pytest.mark.req("GC-27")
def test_linked_region_directory_is_not_emptied(tmp_path):
    uri = make_merged_table(str(tmp_path / "t")).uri
    admin = gc_admin(uri)
    home = Path(uri, region_directory(only_region(admin)))
    elsewhere = tmp_path / "elsewhere"
    home.rename(elsewhere)
    home.symlink_to(elsewhere, target_is_directory=True)

    report = collect(admin)

    assert report.outcome is JobOutcome.PARTIAL
    assert "reached through a symbolic link that leads out of the directory" in str(report.plan.freezes.regions)
    assert len(list((elsewhere / "wal").iterdir())) == 3
    assert len(list(elsewhere.glob("*_gen_*"))) == 3


@pytest.mark.req("GC-27")
def test_region_directory_linked_to_another_place_of_the_table_is_not_emptied(tmp_path):
    """The store follows links within its root, so that collection itself has to look."""
    uri = make_merged_table(str(tmp_path / "t")).uri
    admin = gc_admin(uri)
    home = Path(uri, region_directory(only_region(admin)))
    elsewhere = Path(uri, "elsewhere")
    home.rename(elsewhere)
    home.symlink_to(elsewhere, target_is_directory=True)
    before = sorted(elsewhere.rglob("*_gen_*/**/*")) + sorted(elsewhere.rglob("wal/*"))

    collect(admin)
    report = collect(gc_admin(uri))

    assert report.outcome is JobOutcome.CONFLICT
    assert {"a symbolic link leads out of the table" in each.error for each in report.failures} == {True}
    assert before
    assert sorted(elsewhere.rglob("*_gen_*/**/*")) + sorted(elsewhere.rglob("wal/*")) == before


def test_lost_generation_freezes_only_its_region(steps):
    table = gc_admin(steps).base
    write_generations(table, [20], name="lost")
    admin = gc_admin(steps)
    lost = admin.opened.manifests.load(only_region(admin)).flushed_generations[-1].path
    table.store.delete_directory(f"{region_directory(only_region(admin))}/{lost}")

    report = collect(admin)

    assert report.outcome is JobOutcome.PARTIAL
    assert f"its directory {lost} is missing" in str(report.plan.freezes.regions)


@pytest.mark.req("GC-07", "GC-08")
def test_wal_entries_stay_while_a_recorded_flushed_memtable_cannot_be_opened(steps):
    """Its rows are in those entries; only its own manifest is lost."""
    table = gc_admin(steps).base
    write_generations(table, [20], [21], [22], name="damaged")
    admin = gc_admin(steps)
    damaged = admin.opened.manifests.load(only_region(admin)).flushed_generations[-3].path
    table.store.delete_directory(f"{region_directory(only_region(admin))}/{damaged}/_versions")

    report = collect(admin)

    assert Kind.WAL_ENTRY not in report.done
    assert Gate.UNCLEAR.value in report.plan.kept_by_gate()[Kind.WAL_ENTRY]


def test_unsafe_retention_is_refused_before_anything_is_touched(steps):
    admin = gc_admin(steps, settings=GcSettings(wal_min_age_s=0))
    before = files(steps)

    with pytest.raises(InvalidRequestError) as raised:
        collect(admin)

    assert raised.value.facts["flag"] == "gc.allow_unsafe_retention"
    assert files(steps) == before
    assert not Path(steps, "_mem_wal", "_leases", "gc").exists()


def test_unknown_region_is_refused(steps):
    admin = gc_admin(steps)
    stranger = type(only_region(admin))(int=5)

    with pytest.raises(InvalidRequestError, match="no such region"):
        admin.run(GcRequest(regions={stranger}))
