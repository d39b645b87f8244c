"""S6: damaged and lost flushed MemTables are written anew from what is left of their rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import REPAIR_DIRECTORY, wal_directory, wal_entry_path
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region import drain
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.damage import Vandal
from testkit.faults.file_damage import damage_file
from testkit.tables.generations import RIGHT, WRITERS, GenerationTable, make_generation_table
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people

KINDS = ("zeroed", "truncated", "deleted", "empty")


@pytest.fixture(params=WRITERS)
def made(tmp_path: Path, request: pytest.FixtureRequest) -> GenerationTable:
    return make_generation_table(str(tmp_path / "t"), request.param)


def require_repaired(made: GenerationTable) -> None:
    before = made.manifest
    planned = made.table.run(RepairRequest(dry_run=True))
    assert planned.outcome is JobOutcome.PLANNED
    assert made.manifest == before, "a dry run changed the region"
    assert not (Path(made.table.uri) / REPAIR_DIRECTORY).exists()
    done = made.table.run(RepairRequest())
    assert done.outcome is JobOutcome.DONE, done.why()
    assert made.manifest.writer_epoch == before.writer_epoch
    assert made.seen() == RIGHT
    assert made.seen_by_pylance() == RIGHT
    report = made.table.run(RepairRequest())
    assert (report.outcome, report.why()) == (
        JobOutcome.NOTHING_TO_DO,
        "nothing that it mends is damaged; `memwal doctor` tells of the rest",
    )
    assert made.merged() == RIGHT


@pytest.mark.parametrize("kind", KINDS)
def test_generation_whose_manifest_is_damaged_is_rebuilt(made: GenerationTable, kind: str) -> None:
    for manifest in made.files("_versions"):
        if manifest.suffix == ".manifest":
            damage_file(manifest, kind)
    require_repaired(made)


@pytest.mark.parametrize("kind", KINDS)
def test_generation_whose_data_file_is_damaged_is_rebuilt(made: GenerationTable, kind: str) -> None:
    damage_file(made.files("data")[-1], kind)
    require_repaired(made)


def test_generation_whose_directory_is_gone_is_rebuilt(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    require_repaired(made)


def test_generation_that_the_manifest_forgot_is_rebuilt_and_recorded(made: GenerationTable) -> None:
    """The hole stops every later merge, and its runbook was a dead end (O4)."""
    made.table.opened.manifests.update(made.region_id, lambda stored: drain(stored, {2}))
    require_repaired(made)


def test_generation_whose_wal_is_gone_is_rebuilt_from_its_own_data_file(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2, name="base"), buckets=1)
    deleted = Delete(pa.table({"id": pa.array([1], pa.int64())}))
    write_native_generations(uri, native_region_id(1), [[Put(people(3))], [Put(people(4, 5, name="own")), deleted]])
    made = GenerationTable(Table.open(uri), native_region_id(1))
    shutil.rmtree(Path(uri) / wal_directory(made.region_id))
    for manifest in made.files("_versions"):
        damage_file(manifest, "zeroed")
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert made.seen() == made.merged() == {2: "base", 3: "p3", 4: "own", 5: "own"}


@pytest.mark.parametrize("writer", ["ours", "ours, linked"])
def test_generation_of_ours_whose_wal_was_collected_is_rebuilt_from_its_own_files(tmp_path: Path, writer: str) -> None:
    made = make_generation_table(str(tmp_path / "t"), writer)
    shutil.rmtree(Path(made.table.uri) / wal_directory(made.region_id))
    for manifest in made.files("_versions"):
        damage_file(manifest, "zeroed")
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert made.seen() == made.merged() == RIGHT


@pytest.mark.parametrize(
    ("writer", "column", "outcome"),
    [
        ("ours, linked", "name", JobOutcome.DONE),
        ("ours", "name", JobOutcome.DONE),
        ("ours, linked", "score", JobOutcome.DONE),
        ("ours", "score", JobOutcome.BLOCKED),
    ],
)
def test_values_of_a_column_that_was_dropped_do_not_come_back_in_one_of_its_name(
    tmp_path: Path, writer: str, column: str, outcome: JobOutcome
) -> None:
    """WAL entries note which columns they have; other files tell it by their order, if they can."""
    made = make_generation_table(str(tmp_path / "t"), writer)
    kind = made.table.base.dataset().schema.field(column).type
    lance.dataset(made.table.uri).drop_columns([column])
    lance.dataset(made.table.uri).add_columns(pa.field(column, kind))
    shutil.rmtree(Path(made.table.uri) / wal_directory(made.region_id))
    for manifest in made.files("_versions"):
        damage_file(manifest, "zeroed")

    report = made.table.run(RepairRequest())

    assert report.outcome is outcome, report.why()
    if outcome is JobOutcome.DONE:
        made.table.run(MergeRequest())
        rows = made.table.base.dataset().to_table()
        assert (sorted(rows["id"].to_pylist()), rows[column].null_count) == (sorted(RIGHT), len(RIGHT))


def test_data_file_with_a_key_twice_is_not_trusted_because_nothing_tells_the_order(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "pylance")
    shutil.rmtree(Path(made.table.uri) / wal_directory(made.region_id))
    for manifest in made.files("_versions"):
        damage_file(manifest, "zeroed")
    report = made.table.run(RepairRequest())
    assert (report.outcome, report.done) == (JobOutcome.BLOCKED, ())
    assert "--accept-loss" in report.why()


def test_repaired_generation_does_not_need_its_wal_any_more(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    made.table.run(RepairRequest())
    copy = f"{made.table.uri}-copy"
    shutil.copytree(Path(made.table.uri) / made.directory(), copy)
    shutil.rmtree(Path(made.table.uri) / wal_directory(made.region_id))
    assert sorted(Table.open(copy).base.dataset().to_table().column("id").to_pylist()) == [1, 4, 5, 6]


def test_copy_and_its_record_are_there_before_the_region_changes(made: GenerationTable) -> None:
    damaged = {path.name: path.read_bytes() for path in made.files()}
    for manifest in made.files("_versions"):
        damage_file(manifest, "truncated")
        damaged[manifest.name] = manifest.read_bytes()
    report = made.table.run(RepairRequest())
    [record] = (Path(made.table.uri) / report.backup).glob("*.json")
    document = json.loads(record.read_text())
    assert document["step"] == "rebuild_generation"
    assert "recorded generation 2 as" in document["undo"]
    for origin, copy in document["copied"].items():
        name = Path(origin).name
        if name in damaged:
            assert (Path(made.table.uri) / copy).read_bytes() == damaged[name]
    assert {Path(origin).name for origin in document["copied"]} >= set(damaged)


def test_living_writer_goes_on_after_its_flushed_generation_was_rebuilt(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "ours")
    with RegionWriter.open(made.table.base, made.region_id) as writer:
        writer.put(people(7, name="living"))
        shutil.rmtree(Path(made.table.uri) / made.directory())
        assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
        writer.put(people(8, name="living"))
        writer.flush()
    assert made.merged() == {**RIGHT, 7: "living", 8: "living"}


def test_damaged_region_manifest_is_left_to_a_person(made: GenerationTable) -> None:
    Vandal(made.table.base).garble_manifest(made.region_id)
    report = made.table.run(RepairRequest())
    assert report.outcome is JobOutcome.BLOCKED
    assert "corrupt-region-manifest" in report.why()


def test_garbage_collection_leaves_the_copies_alone(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    backup = Path(made.table.uri) / str(made.table.run(RepairRequest()).backup)
    made.merged()
    made.table.run(GcRequest(dry_run=False))
    assert list(backup.rglob("*.json"))


def test_only_the_regions_asked_for_are_repaired(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    other = native_region_id(9)
    write_native_generations(made.table.uri, other, [[Put(people(7))]])
    assert made.table.run(RepairRequest(regions=(other,))).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.parametrize("dry_run", [False, True])
def test_region_that_the_table_does_not_have_is_refused(made: GenerationTable, dry_run: bool) -> None:
    """A mistyped region was told that nothing is damaged."""
    shutil.rmtree(Path(made.table.uri) / made.directory())
    other = "00000000-0000-4000-8000-000000000000"
    for wrong in (RepairRequest(regions=(other,)), RepairRequest(accept_loss=(f"{other}:wal-2",))):
        with pytest.raises(InvalidRequestError) as raised:
            made.table.run(wrong.model_copy(update={"dry_run": dry_run}))
        assert raised.value.facts["unknown"] == [other]


def test_loss_that_fits_no_damage_is_named(made: GenerationTable) -> None:
    """An accepted loss with a wrong number was ignored without a word."""
    shutil.rmtree(Path(made.table.uri) / made.directory())
    wrong = f"{made.region_id}:1", f"{made.region_id}:wal-1"
    report = made.table.run(RepairRequest(accept_loss=(*wrong, f"{made.region_id}:2")))
    assert report.outcome is JobOutcome.DONE
    assert report.to_dict()["unneeded_losses"] == list(wrong)
    told = f"not damaged, so that nothing of it is given up: {', '.join(wrong)}"
    assert told in report.why()
    assert told in report.view().notes
    assert told in made.table.run(RepairRequest(accept_loss=wrong)).why()


def test_loss_of_what_never_was_or_is_not_looked_at_is_refused(made: GenerationTable) -> None:
    """An accepted loss with a wrong number was ignored without a word."""
    other = native_region_id(9)
    write_native_generations(made.table.uri, other, [[Put(people(7))]])
    with pytest.raises(InvalidRequestError) as never:
        made.table.run(RepairRequest(accept_loss=(f"{made.region_id}:1", f"{made.region_id}:99")))
    assert never.value.facts["unknown"] == [f"{made.region_id}:99"]
    with pytest.raises(InvalidRequestError) as left_out:
        made.table.run(RepairRequest(regions=(other,), accept_loss=(f"{made.region_id}:1",)))
    assert left_out.value.facts["regions"] == [str(made.region_id)]


def test_loss_must_name_a_region_and_a_generation() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        RepairRequest(accept_loss=("2",))

    assert str(refused.value.facts["problems"]["accept_loss.0"]).startswith("write REGION:GENERATION or")  # type: ignore[index]


@pytest.mark.parametrize("entry", [2, 3])
def test_entry_that_cannot_be_read_is_never_passed_over_silently(tmp_path: Path, entry: int) -> None:
    """Without the flag nothing is given up, however often it is run."""
    made = make_generation_table(str(tmp_path / "t"), "ours")
    shutil.rmtree(Path(made.table.uri) / made.directory())
    damage_file(Path(made.table.uri) / wal_entry_path(made.region_id, entry, ".lance"), "zeroed")
    before = made.manifest
    for _ in range(2):
        report = made.table.run(RepairRequest())
        assert report.outcome is JobOutcome.BLOCKED
        assert f"memwal repair {made.table.uri} --accept-loss {made.region_id}:2" in report.why()
    assert made.manifest == before


def test_generation_that_jobs_have_seen_in_another_directory_does_not_freeze_the_table(made: GenerationTable) -> None:
    made.table.run(SnapshotRequest(force=True))
    record = made.table.opened.freezes.load()
    assert record is not None
    assert 2 in record.memory.regions[made.region_id].generations, "the job remembers what it saw"
    shutil.rmtree(Path(made.table.uri) / made.directory())
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert made.merged() == RIGHT
    assert made.table.opened.freezes.active() == ()


def test_generation_that_jobs_have_seen_forgotten_does_not_freeze_the_table(made: GenerationTable) -> None:
    """The merge that stopped at the hole remembers the manifest without it."""
    made.table.opened.manifests.update(made.region_id, lambda stored: drain(stored, {2}))
    assert made.table.run(MergeRequest()).outcome is JobOutcome.BLOCKED
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert made.merged() == RIGHT
    assert made.table.opened.freezes.active() == ()
