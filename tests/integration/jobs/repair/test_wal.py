"""S6: rows that wait in a WAL whose entries are damaged or gone: named, mended on demand, and nothing else is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import lance
import pytest

from memwal_core.errors import CorruptionError, FencedError
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.report import RepairReport
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.run import REPAIR_CHANGED, REPAIR_COPIED, repair
from memwal_core.jobs.repair.wal import REPAIR_CLAIMED, REPAIR_DELETED
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from testkit.faults.damage import Vandal
from testkit.faults.failpoints import ArmedFailpoints, SimulatedCrash
from testkit.faults.file_damage import damage_file
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people

NAMES = {number: f"put {number}" for number in (1, 2, 3)}
PLACES = (REPAIR_COPIED, REPAIR_CLAIMED, REPAIR_DELETED, REPAIR_CHANGED)
PACKING = {"packed": Settings(), "linked": Settings.model_validate({"writer": {"pack_below_bytes": 0}})}


@dataclass(frozen=True)
class Waiting:
    """A table whose only region has three puts in its WAL and nothing else: put n has the rows 0 and n."""

    table: Table
    region_id: RegionId
    suffix: str
    first: int

    def wal_id(self, put: int) -> int:
        return self.first + put - 1

    def path(self, put: int) -> Path:
        return Path(self.table.uri) / wal_entry_path(self.region_id, self.wal_id(put), self.suffix)

    def label(self, put: int) -> str:
        return f"{self.region_id}:wal-{self.wal_id(put)}"

    def accept(self, *puts: int) -> RepairReport:
        return Table.open(self.table.uri).run(RepairRequest(accept_loss=tuple(map(self.label, puts))))

    def seen(self) -> dict[int, str]:
        rows = Table.open(self.table.uri).to_arrow(consistency="durable")
        return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))

    def merged(self) -> dict[int, str]:
        table = Table.open(self.table.uri)
        table.run(FlushRequest(fence=True))
        table.run(MergeRequest())
        rows = lance.dataset(self.table.uri).to_table()
        return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def make_waiting(uri: str, suffix: str, settings: Settings | None = None) -> Waiting:
    made = make_people_table(uri, buckets=1)
    if suffix == ARROW_WAL_SUFFIX:
        writer = lance.dataset(uri).mem_wal_writer(str(native_region_id(1)), durable_write=True)
        writer.close()
        region = native_region_id(1)
    else:
        table = Table.open(uri, settings=settings)
        with table.writer() as opened:
            opened.put(people(9))
            opened.flush()
        [region] = table.opened.manifests.region_ids()
        table.run(MergeRequest())
        made.dataset().delete("id = 9")
    table = Table.open(uri, settings=settings)
    with RegionWriter.open(table.base, region) as writer:
        first = max(Vandal(table.base).wal_ids(region, suffix), default=0) + 1
        for number, name in NAMES.items():
            writer.put(people(0, number, name=name))
    return Waiting(table, region, suffix, first)


@pytest.fixture(params=[LANCE_WAL_SUFFIX, ARROW_WAL_SUFFIX])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Waiting:
    return make_waiting(str(tmp_path / "t"), request.param)


def expected(*lost: int) -> dict[int, str]:
    """Return what is left if these puts are lost: row 0 is that of the newest put that is left."""
    left = [number for number in NAMES if number not in lost]
    return {**({0: NAMES[max(left)]} if left else {}), **{number: NAMES[number] for number in left}}


def test_nothing_is_given_up_without_the_flag(made: Waiting) -> None:
    damage_file(made.path(2), "zeroed")
    before = made.table.opened.manifests.load(made.region_id)
    for request in (RepairRequest(), RepairRequest(accept_loss=(made.label(1), made.label(3)))):
        report = Table.open(made.table.uri).run(request)
        assert report.outcome is JobOutcome.BLOCKED
        [left] = report.plan.unresolved
        assert f"--accept-loss {made.label(2)}" in left.remedy
        assert "all zero" in left.problem
        assert made.table.opened.manifests.load(made.region_id) == before
    with pytest.raises(CorruptionError):
        RegionWriter.open(made.table.base, made.region_id)


@pytest.mark.parametrize("damage", ["zeroed", "truncated", "empty", "deleted"])
@pytest.mark.parametrize("put", [1, 2, 3])
def test_only_the_rows_of_the_damaged_entry_are_lost(made: Waiting, put: int, damage: str) -> None:
    if damage == "deleted":
        # The end of a WAL that nobody has seen cannot be missed.
        Vandal(made.table.base).manifest(made.region_id, wal_id_last_seen=made.wal_id(3))
        made.path(put).unlink()
    else:
        damage_file(made.path(put), damage)
    report = made.accept(put)
    assert report.outcome is JobOutcome.DONE, report.why()
    assert made.seen() == expected(put)
    assert made.accept(put).outcome is JobOutcome.NOTHING_TO_DO
    assert not [each for each in Table.open(made.table.uri).doctor().findings if each.severity.value == "critical"]
    assert made.merged() == expected(put)


@pytest.mark.parametrize("settings", PACKING.values(), ids=PACKING)
def test_the_next_writer_goes_on_behind_what_was_given_up(tmp_path: Path, settings: Settings) -> None:
    made = make_waiting(str(tmp_path / "t"), LANCE_WAL_SUFFIX, settings)
    damage_file(made.path(1), "zeroed")
    made.path(2).unlink()
    made.accept(1, 2)
    with RegionWriter.open(made.table.base.with_settings(settings), made.region_id) as writer:
        writer.put(people(4, name="put 4"))
        writer.flush()
    assert made.merged() == {**expected(1, 2), 4: "put 4"}


@pytest.mark.parametrize("put", [1, 2])
def test_a_hole_that_no_manifest_knows_of_is_no_end(made: Waiting, put: int) -> None:
    """A writer filled it, and then took what lay behind it for newer rows than its own."""
    made.path(put).unlink()
    flushed = Table.open(made.table.uri).run(FlushRequest(fence=True))
    assert (flushed.outcome, list(flushed.unflushable)) == (JobOutcome.BLOCKED, [made.region_id])
    assert f"entry {made.wal_id(put) + 1} was written after it" in flushed.unflushable[made.region_id]
    with pytest.raises(CorruptionError) as caught:
        RegionWriter.open(made.table.base, made.region_id)
    assert caught.value.facts["missing_wal_id"] == made.wal_id(put)

    assert made.accept(put).outcome is JobOutcome.DONE
    with RegionWriter.open(made.table.base, made.region_id) as writer:
        writer.put(people(0, 3, name="newer"))
    assert made.merged() == {**expected(put), 0: "newer", 3: "newer"}


def test_damaged_bytes_are_kept_and_named_in_copy_and_ledger(made: Waiting) -> None:
    damage_file(made.path(2), "zeroed")
    bytes_before = made.path(2).read_bytes()
    report = made.accept(2)
    backup = Path(made.table.uri) / str(report.backup)
    [record] = backup.glob("*.json")
    document = json.loads(record.read_text())
    [copy] = [each for each in document["copied"].values() if each.endswith(made.path(2).name)]
    assert (Path(made.table.uri) / copy).read_bytes() == bytes_before
    assert list(document["wal_entries"]) == [str(made.wal_id(2))]
    [run] = [run for run in made.table.opened.ledger.runs("repair") if run.facts["steps"]]
    assert run.facts["steps"][0]["facts"]["wal_entries"] == document["wal_entries"]


def test_a_writer_that_still_lives_is_fenced(made: Waiting) -> None:
    """Its next flush would refer to the entry that is replaced."""
    writer = RegionWriter.open(made.table.base, made.region_id)
    damage_file(made.path(2), "zeroed")
    made.accept(2)
    with pytest.raises(FencedError):
        writer.flush()
    assert made.merged() == expected(2)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_repair_that_dies_is_repeated(made: Waiting, place: Failpoint) -> None:
    damage_file(made.path(1), "zeroed")
    damage_file(made.path(2), "truncated")
    request = RepairRequest(accept_loss=(made.label(1), made.label(2)))
    failpoints = ArmedFailpoints().arm(place)
    with pytest.raises(SimulatedCrash):
        repair(JobContext(made.table.opened, failpoints=failpoints), request)
    assert failpoints.hits[place] == 1
    made.accept(1, 2)
    assert made.seen() == expected(1, 2)


def test_an_entry_that_is_put_back_while_the_repair_begins_stays(made: Waiting) -> None:
    whole = made.path(2).read_bytes()
    for put in (1, 2):
        damage_file(made.path(put), "zeroed")
    failpoints = ArmedFailpoints().arm(REPAIR_CLAIMED, lambda: made.path(2).write_bytes(whole))
    request = RepairRequest(accept_loss=(made.label(1), made.label(2)))
    assert repair(JobContext(made.table.opened, failpoints=failpoints), request).outcome is JobOutcome.DONE
    assert made.merged() == expected(1)


def test_an_entry_that_its_writer_flushes_while_the_repair_begins_keeps_its_rows(tmp_path: Path) -> None:
    made = make_waiting(str(tmp_path / "t"), LANCE_WAL_SUFFIX)
    writer = RegionWriter.open(made.table.base, made.region_id)
    damage_file(made.path(2), "zeroed")
    failpoints = ArmedFailpoints().arm(REPAIR_COPIED, writer.flush)
    request = RepairRequest(accept_loss=(made.label(2),))
    repair(JobContext(made.table.opened, failpoints=failpoints), request)
    assert bytes(made.path(2).stat().st_size) == made.path(2).read_bytes(), "what is flushed is not touched"
    assert made.merged() == expected()


def test_sound_entries_are_never_given_up(made: Waiting) -> None:
    assert made.accept(1, 2, 3).outcome is JobOutcome.NOTHING_TO_DO
    assert made.merged() == expected()
