"""S6: a generation that nothing can rebuild is given up on demand, and what is gone is written down."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.format.paths import wal_directory, wal_entry_path
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.region import RegionStatus
from memwal_core.wal import codec_for_suffix
from testkit.faults.file_damage import damage_file
from testkit.tables.generations import RIGHT, WRITERS, GenerationTable, make_generation_table


@pytest.fixture(params=WRITERS)
def made(tmp_path: Path, request: pytest.FixtureRequest) -> GenerationTable:
    return make_generation_table(str(tmp_path / "t"), request.param)


def without_rows(made: GenerationTable) -> GenerationTable:
    """Leave nothing of the rows of the second generation, but its key index."""
    shutil.rmtree(Path(made.table.uri) / wal_directory(made.region_id))
    for file in [*made.files("_versions"), *made.files("data")]:
        damage_file(file, "zeroed")
    return made


def accepted(made: GenerationTable) -> RepairRequest:
    return RepairRequest(accept_loss=(f"{made.region_id}:2",))


def test_nothing_is_given_up_without_the_flag(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "pylance")
    without_rows(made)
    before = made.manifest
    other = RepairRequest(accept_loss=(f"{made.region_id}:3",))
    for request in (RepairRequest(), other):
        assert made.table.run(request).outcome is JobOutcome.BLOCKED
        assert made.manifest == before


def test_generation_without_any_row_left_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "pylance")
    without_rows(made)
    report = made.table.run(accepted(made))
    assert report.outcome is JobOutcome.DONE, report.why()
    left = {1: "first", 2: "base", 3: "first", 5: "third"}
    assert made.seen() == left
    assert made.seen_by_pylance() == left
    assert made.table.run(accepted(made)).outcome is JobOutcome.NOTHING_TO_DO
    assert made.merged() == left


def test_keys_that_are_gone_are_written_down_in_copy_and_ledger(tmp_path: Path) -> None:
    made = make_generation_table(str(tmp_path / "t"), "pylance")
    without_rows(made)
    report = made.table.run(accepted(made))
    backup = Path(made.table.uri) / str(report.backup)
    [record] = backup.glob("*.json")
    loss = json.loads(record.read_text())["loss"]
    assert (loss["keys_gone"], loss["keys_known_from"]) == (4, "its key index")
    [keys] = backup.glob("lost-keys-*.arrow")
    with pa.ipc.open_stream(keys.read_bytes()) as reader:
        assert sorted(reader.read_all().column("id").to_pylist()) == [1, 4, 5, 6]
    [run] = made.table.opened.ledger.runs("repair")
    [step] = run.facts["steps"]
    assert step["facts"]["loss"]["keys_gone"] == 4
    assert run.facts["backup"] == report.backup


def test_rows_that_are_left_stay(made: GenerationTable) -> None:
    """Only what no entry has any more is lost: here the tombstone of id 1."""
    suffix = ".lance" if made.manifest.status is RegionStatus.SEALED else ".arrow"
    shutil.rmtree(Path(made.table.uri) / made.directory())
    damaged = tombstone_entry(made, suffix)
    damage_file(Path(made.table.uri) / wal_entry_path(made.region_id, damaged, suffix), "zeroed")
    report = made.table.run(accepted(made))
    assert report.outcome is JobOutcome.DONE, report.why()
    [done] = report.done
    assert list(done.facts["loss"]["wal_entries_gone"]) == [damaged]
    assert made.seen() == {1: "first", **RIGHT}
    assert made.merged() == {1: "first", **RIGHT}


def tombstone_entry(made: GenerationTable, suffix: str) -> int:
    """Return the WAL entry that deletes id 1."""
    codec = codec_for_suffix(suffix, {})
    for wal_id in range(1, 12):
        entry = codec.read(made.store, made.region_id, wal_id)
        if not entry.is_fence and entry.rows.column("_tombstone").to_pylist() == [True]:
            return wal_id
    raise AssertionError("no entry has the tombstone")


def test_accepting_the_loss_of_a_generation_that_can_be_rebuilt_loses_nothing(made: GenerationTable) -> None:
    shutil.rmtree(Path(made.table.uri) / made.directory())
    report = made.table.run(accepted(made))
    assert [each.step.kind.value for each in report.done] == ["rebuild_generation"]
    assert made.merged() == RIGHT


def test_accepting_the_loss_of_a_sound_generation_does_nothing(made: GenerationTable) -> None:
    before = made.manifest
    assert made.table.run(accepted(made)).outcome is JobOutcome.NOTHING_TO_DO
    assert made.manifest == before
