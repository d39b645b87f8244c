"""Regions that are as the region snapshot says are not read, and nobody could tell from what is shown and done."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock, SystemClock
from memwal_core.coordination.freeze import FreezeCause
from memwal_core.errors import FrozenError, MemwalError
from memwal_core.format.paths import (
    VERSION_HINT_NAME,
    batch_directory,
    generation_path,
    manifest_path,
    region_directory,
    table_manifest_path,
    version_hint_path,
    wal_entry_path,
)
from memwal_core.ids import RegionId
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.flush_idle import survey as flush_survey
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc import at_rest as gc_at_rest
from memwal_core.jobs.gc import run as gc_run
from memwal_core.jobs.gc.at_rest import regions_without_garbage
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.merge import survey as merge_survey
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot import survey as snapshot_survey
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.observe import status
from memwal_core.observe.doctor import examiner
from memwal_core.observe.health import Health
from memwal_core.reader import Consistency
from memwal_core.reader.plan import survey as reader_survey
from memwal_core.settings import GcSettings, Settings, StorageSettings, WalCollection
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people, with_clock

UNSYNCED = Settings(storage=StorageSettings(fsync=False), gc=GcSettings(manifest_retention=2))
STATUS, SNAPSHOT, FLUSH = 11, 25, 24
"""Two of the flush ask at its first run whether its lease and its history are older than their first versions."""
PLAN, MERGE, COUNT = 9, 25, 9
CHANGED_PLAN, CHANGED_MERGE, CHANGED_COUNT, CHANGED_SNAPSHOT = 20, 51, 13, 49
"""Two of the merge and one of the snapshot look for the ends of new files, which only a local disk can lose."""
GC, GC_RESTING, GC_REGION = 22, 26, 4
"""Where one region of many has one generation to merge; what Lance does itself is not counted."""
HEALTH, HEALTH_REGION = 50, 13
RESTING_HEALTH, CHANGED_HEALTH = 57, 17
DOCTOR, DOCTOR_REGION = 58, 15
"""Of the requests for each region, ``GC_REGION`` are those of a plan of a collection."""


class _World:
    """A table whose regions are merged and published."""

    def __init__(self, uri: str, regions: int) -> None:
        self.uri = uri
        self.clock: Clock = SystemClock()
        make_people_table(uri, buckets=regions, settings=UNSYNCED)
        self.store = FaultyStore(open_store(uri, settings=UNSYNCED.storage))
        self.write(*range(12 * regions), flush=True)
        self.table().run(MergeRequest())
        self.table().run(SnapshotRequest())
        self.first: RegionId = self.table().opened.manifests.region_ids()[0]

    def table(self) -> Table:
        base = BaseTable.open(self.uri, store=self.store, settings=UNSYNCED)
        return Table(OpenTable.of(with_clock(base, self.clock)))

    def write(self, *ids: int, flush: bool = False) -> None:
        with TableWriter.open(BaseTable.open(self.uri, settings=UNSYNCED)) as writer:
            writer.put(people(*ids, name="new"))
            if flush:
                writer.flush()

    def requests(self, work: Callable[[Table], object]) -> int:
        table = self.table()
        self.store.calls.clear()
        work(table)
        return len(self.store.calls)

    def newest(self) -> str:
        return manifest_path(self.first, self.table().opened.manifests.load(self.first).version)


@pytest.mark.parametrize("regions", [1, 16])
def test_p8_looking_at_regions_that_rest_costs_the_same_at_any_number(tmp_path: Path, regions: int) -> None:
    """Status cost 14 requests at one region and 329 at 64, a snapshot without news 33 and 348, a flush 29 and 281."""
    world = _World(str(tmp_path / "t"), regions)
    assert len(world.table().opened.manifests.region_ids()) == regions

    assert world.requests(Table.status) == STATUS
    assert world.requests(lambda table: table.run(SnapshotRequest())) == SNAPSHOT
    assert world.requests(lambda table: table.run(FlushRequest())) == FLUSH + 2 * (regions == 1)


@pytest.mark.parametrize("regions", [16, 32])
def test_p8_merges_and_scans_read_only_the_regions_that_have_changed(tmp_path: Path, regions: int) -> None:
    """At 1,000 regions at rest a merge made 3,030 requests, and a count 3,008."""
    world = _World(str(tmp_path / "t"), regions)
    rows = 12 * regions

    assert world.requests(lambda table: table.run(MergeRequest(dry_run=True))) == PLAN
    assert world.requests(lambda table: table.run(MergeRequest())) == MERGE
    assert world.requests(lambda table: _require(table.count() == rows)) == COUNT

    world.write(0, flush=True)
    assert world.requests(lambda table: table.run(MergeRequest(dry_run=True))) == CHANGED_PLAN
    assert world.requests(lambda table: _require(table.count() == rows)) == CHANGED_COUNT
    assert world.requests(lambda table: _require(table.run(MergeRequest()).generations == 1)) == CHANGED_MERGE


def test_p8_what_is_kept_of_batches_costs_nothing(tmp_path: Path) -> None:
    """Of 2,600 named batches the listing of ``_mem_wal/`` was so long that every region was read instead."""
    world = _World(str(tmp_path / "t"), 16)
    for number in range(5_000):
        world.store.put(f"{batch_directory('hourly', str(number))}/done.json", b"{}")

    assert world.requests(Table.status) == STATUS
    assert world.requests(lambda table: table.run(MergeRequest(dry_run=True))) == PLAN
    assert world.requests(Table.health) == RESTING_HEALTH


def test_p8_a_read_knows_what_rests_whatever_another_read_of_the_table_finds_out(tmp_path: Path) -> None:
    """Both kept it in one place: one looked at the WAL of every region, or took what was known before it began."""
    world = _World(str(tmp_path / "t"), 12)
    world.write(0, flush=True)
    table = world.table()

    def read() -> list[str]:
        world.store.calls.clear()
        assert table.count(consistency=Consistency.DURABLE) == 144
        return sorted(call.path for call in world.store.calls if "/wal" in call.path)

    alone = read()
    begun = world.store.add(
        Rule(
            lambda _: table.count(consistency=Consistency.LATEST), Moment.AFTER, path=lambda path: "/manifest/" in path
        )
    )
    assert (read(), begun.matched > 0) == (alone, True)


@pytest.mark.parametrize("regions", [1, 12])
def test_p8_work_on_one_region_costs_the_same_in_any_table(tmp_path: Path, regions: int) -> None:
    world = _World(str(tmp_path / "t"), regions)
    assert world.requests(lambda table: table.run(GcRequest())) == (GC + GC_REGION if regions == 1 else GC_RESTING)
    for generations in (1, 3):
        for _ in range(generations):
            world.write(0, flush=True)
        assert world.requests(lambda table: table.run(MergeRequest())) == CHANGED_MERGE - 2 * (regions == 1)
        assert world.requests(lambda table: table.run(SnapshotRequest())) == CHANGED_SNAPSHOT


@pytest.mark.parametrize("regions", [12, 24])
def test_p8_what_is_told_and_remembered_of_a_merge_follows_what_it_merged(tmp_path: Path, regions: int) -> None:
    """Each of 200 remembered runs had the progress of every region: 9 MB at 1,000, written twice in each run."""
    world = _World(str(tmp_path / "t"), regions)
    world.write(0, flush=True)

    planned, report = world.table().run(MergeRequest(dry_run=True)), world.table().run(MergeRequest())

    [changed] = [each for each in report.regions if each.merged_here]
    assert world.table().opened.ledger.runs("merge")[-1].facts["progress"] == {str(changed.region_id): 2}
    for view in (planned.view(), report.view()):
        [grid] = view.grids
        assert [row[0] for row in grid.rows] == [str(changed.region_id)]
        assert f"nothing to merge in {regions - 1} regions" in view.notes
    assert not world.table().run(MergeRequest()).facts()["progress"]


@pytest.mark.parametrize("regions", [12, 24])
def test_p8_a_collection_reads_only_the_regions_that_may_have_garbage(tmp_path: Path, regions: int) -> None:
    """Of 512 regions one had changed: a cycle made 2,294 requests, 2,048 of them for a look at every region."""
    world = _World(str(tmp_path / "t"), regions)
    for _ in range(2):
        world.write(0, flush=True)
    world.table().run(MergeRequest())
    world.table().run(SnapshotRequest())
    quiet = GC_RESTING + 2  # For the versions that this merge and this snapshot made.
    assert world.requests(lambda table: table.run(GcRequest())) == quiet

    world.clock = ManualClock(SystemClock().now() + timedelta(days=30))
    plans: list[GcReport] = []
    assert world.requests(lambda table: plans.append(table.run(GcRequest()))) == quiet + GC_REGION
    freed = plans[0].plan.free_by_kind()
    assert len({item.region_id for item in plans[0].plan.free} - {None}) == 1
    assert world.table().run(GcRequest(dry_run=False)).done == freed


def test_p8_a_collection_reads_the_manifest_of_each_version_of_the_table_once(tmp_path: Path) -> None:
    """Two jobs of each cycle read them all: 3,400 requests where a table was written to every ten minutes."""
    world = _World(str(tmp_path / "t"), 1)
    for _ in range(8):
        world.write(0, flush=True)
        world.table().run(MergeRequest())
        world.table().run(SnapshotRequest())

    def manifests_read(request: JobRequest) -> int:
        world.requests(lambda table: table.run(request))
        return sum(call.operation == "get_range" and call.path.startswith("_versions/") for call in world.store.calls)

    versions = 8 * 2
    assert manifests_read(GcRequest()) == manifests_read(GcRequest(dry_run=False)) > versions
    remembered = manifests_read(GcRequest())
    world.write(0, flush=True)
    world.table().run(MergeRequest())
    assert manifests_read(CompactRequest(remove_versions=True)) == remembered + 1 < 4
    assert manifests_read(GcRequest(dry_run=False)) == remembered + 1
    assert manifests_read(GcRequest(dry_run=False)) == remembered


@pytest.mark.parametrize("versions", [20, 60])
def test_p8_a_deep_look_reads_the_manifests_of_versions_that_no_collection_remembers(
    tmp_path: Path, versions: int
) -> None:
    """Every look of the watch read those of all versions: 1,000 requests for each thousand, every ten minutes."""
    world = _World(str(tmp_path / "t"), 1)
    for number in range(versions):
        lance.dataset(world.uri).update_config({"number": str(number)})

    def manifests_read(look: Callable[[Table], object]) -> int:
        world.requests(look)
        return sum(call.operation == "get_range" and call.path.startswith("_versions/") for call in world.store.calls)

    assert manifests_read(Table.doctor) > 2 * versions
    world.table().run(GcRequest(dry_run=False))
    assert manifests_read(Table.doctor) == 1
    assert manifests_read(lambda table: table.doctor(contents=True)) > versions
    lance.dataset(world.uri).update_config({"number": "new"})
    assert manifests_read(Table.doctor) == 3


@pytest.mark.parametrize(("module", "look"), [(gc_at_rest, "regions_at_rest"), (gc_run, "regions_without_garbage")])
def test_a_region_that_moves_on_while_regions_are_listed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, look: str
) -> None:
    """The base table is read later, and has merged what the row of the region snapshot does not know of."""
    world = _World(str(tmp_path / "t"), 12)
    look_at = getattr(module, look)

    def look_and_move_on(*args: object) -> object:
        found = look_at(*args)
        _merge_more(world)
        return found

    monkeypatch.setattr(module, look, look_and_move_on)
    report = world.table().run(GcRequest())

    assert not report.plan.freezes
    manifests = world.table().opened.manifests
    recorded = sum(len(manifests.load(each).flushed_generations) for each in manifests.region_ids())
    assert sum(item.kind is Kind.FLUSHED_MEMTABLE for item in report.plan.items) == recorded > 12


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_region_with_leftovers_is_read_before_it_is_judged(tmp_path: Path, is_directory: bool) -> None:
    """Old versions of its manifest tell since when a directory is unrecorded, or whose it was."""
    world = _World(str(tmp_path / "t"), 12)
    opened = world.table().opened
    surveyor = GcSurveyor(opened.base, opened.manifests, concurrency=4, collect_wal=WalCollection.OURS)
    policy = Policy.of(UNSYNCED, world.clock.now())
    assert world.first in regions_without_garbage(surveyor, policy, 12).regions

    temporary = f"{wal_entry_path(world.first, 1, '.lance')}.tmp.abc"
    orphan = f"{generation_path(world.first, '0a1b2c3d_gen_9')}/data/x.lance"
    world.store.put(orphan if is_directory else temporary, b"left behind")
    resting = regions_without_garbage(surveyor, policy, 12).regions
    assert (len(resting), world.first in resting) == (11, False)


@pytest.mark.parametrize("job", [GcRequest(dry_run=False), MergeRequest(), FlushRequest(), SnapshotRequest()])
def test_a_region_that_was_put_back_as_it_was_is_read(tmp_path: Path, job: JobRequest) -> None:
    """A copy that kept its times looked like the row of the region snapshot, and its later rows were not missed."""
    world = _World(str(tmp_path / "t"), 12)
    region, copy = tmp_path / "t" / region_directory(world.first), tmp_path / "copy"
    shutil.copytree(region, copy)
    world.write(*range(144), flush=True)
    world.table().run(GcRequest(dry_run=False))
    shutil.rmtree(region)
    shutil.copytree(copy, region)

    with pytest.raises(FrozenError) as raised:
        world.table().run(job)

    assert raised.value.facts["causes"] == [FreezeCause.REGION_WENT_BACK]


@pytest.mark.parametrize("regions", [2, 12])
def test_a_damaged_index_blocks_a_collection_at_any_number_of_regions(tmp_path: Path, regions: int) -> None:
    """Above eight regions the job failed with an error of its own, and no plan told what is frozen."""
    world = _World(str(tmp_path / "t"), regions)
    newest = table_manifest_path(world.table().opened.base.state().version)
    whole, name = world.store.get(newest), b"MemWalIndexDetails"
    world.store.put(newest, re.sub(name + b"(....).{16}", name + rb"\1" + 16 * b"\xff", whole, flags=re.DOTALL))

    for dry_run in (True, False):
        report = world.table().run(GcRequest(dry_run=dry_run))
        assert (report.outcome, report.done) == (JobOutcome.BLOCKED, {})
        assert "the MemWAL index details cannot be read" in report.plan.freezes.table


@pytest.mark.parametrize("regions", [1, 6])
def test_p8_a_judgement_reads_each_version_of_a_manifest_once(tmp_path: Path, regions: int) -> None:
    """The newest was read again as part of its history: 13 requests for each region, and 15 of a deep look."""
    world = _World(str(tmp_path / "t"), regions)

    assert world.requests(Table.health) == HEALTH + HEALTH_REGION * regions
    assert world.requests(Table.doctor) == DOCTOR + DOCTOR_REGION * regions


@pytest.mark.parametrize("regions", [12, 24])
def test_p8_a_judgement_reads_only_the_regions_that_have_changed(tmp_path: Path, regions: int) -> None:
    """The watch made 9 requests for each region, two of them listings, in every round: 9,000 at 1,000 that rest."""
    world = _World(str(tmp_path / "t"), regions)

    assert world.requests(Table.health) == RESTING_HEALTH
    world.write(0)
    assert world.requests(Table.health) == RESTING_HEALTH + CHANGED_HEALTH


def test_p8_a_judgement_reads_each_history_once(tmp_path: Path) -> None:
    """Each was read three times, and that of merges five times: most requests of a round of the watch."""
    world = _World(str(tmp_path / "t"), 1)
    world.table().run(GcRequest(dry_run=False))
    world.table().run(FlushRequest())

    world.requests(Table.health)
    histories = [
        call.path
        for call in world.store.calls
        if call.operation == "get" and "/_ledger/" in call.path and not call.path.endswith(VERSION_HINT_NAME)
    ]
    assert len(histories) == len(set(histories)) == 5  # Of four jobs, and of verifications, which never ran.


def _require(is_so: bool) -> None:
    assert is_so


def _damage(world: _World) -> None:
    world.store.put(world.newest(), b"damaged")


def _lose_the_newest(world: _World) -> None:
    """Leave the hint alone, which was written after the version that it names."""
    world.write(*range(24), flush=True)
    world.store.delete(world.newest())


def _merge_more(world: _World) -> None:
    world.write(*range(24), flush=True)
    world.table().run(MergeRequest())


def _forget_the_region(world: _World) -> None:
    shutil.rmtree(Path(world.uri) / region_directory(world.first))


def _other_version_of_the_same_number(world: _World) -> None:
    world.store.put(world.newest(), world.store.get(world.newest(), 1 << 20))


CHANGES: dict[str, Callable[[_World], object]] = {
    "nothing": lambda world: None,
    "rows": lambda world: world.write(*range(24)),
    "rows flushed": lambda world: world.write(*range(24), flush=True),
    "rows flushed and merged": _merge_more,
    "a region of another client": lambda world: write_native_generations(
        world.uri, native_region_id(1), [[Put(people(50, name="theirs"))]]
    ),
    "a damaged manifest": _damage,
    "a lost manifest": _lose_the_newest,
    "a lost region": _forget_the_region,
    "a manifest written again": _other_version_of_the_same_number,
    "a lost hint": lambda world: world.store.delete(version_hint_path(f"{region_directory(world.first)}/manifest")),
    "an entry beyond a hole": lambda world: world.store.put(wal_entry_path(world.first, 90, ".lance"), b"entry"),
    "an entry of the other codec": lambda world: world.store.put(wal_entry_path(world.first, 1, ".arrow"), b"entry"),
}


def _collected(plan: GcPlan) -> list[object]:
    return [(item.kind, item.path, item.action, item.reason) for item in plan.items] + [plan.freezes]


def _judged(health: Health) -> list[object]:
    judged = [(each.signal, each.level, each.subject) for each in health.signals]
    return [[(each.identity, each.evidence) for each in health.damage], judged, health.status]


def _shown(world: _World) -> list[object]:
    found: list[object] = []
    looks: list[Callable[[Table], object]] = [
        lambda table: table.status().to_dict(),
        lambda table: table.run(SnapshotRequest(dry_run=True)).plan,
        lambda table: [
            (each.region_id, each.writer_epoch, each.reason, each.evidence)
            for each in table.run(FlushRequest(dry_run=True)).plan.regions
        ],
        lambda table: table.run(MergeRequest(dry_run=True)).plan.to_dict(),
        lambda table: _collected(table.run(GcRequest()).plan),
        lambda table: _judged(table.health()),
        lambda table: sorted(table.view(Consistency.LATEST).scan().to_arrow().column("id").to_pylist()),
        lambda table: sorted(table.view(Consistency.DURABLE).scan().to_arrow().column("id").to_pylist()),
    ]
    for look in looks:
        try:
            found.append(look(world.table()))
        except MemwalError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_shown_and_planned_is_what_reading_every_region_tells(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = _World(str(tmp_path / "t"), 4)
    CHANGES[change](world)
    for module in (gc_at_rest, merge_survey, reader_survey, examiner):
        monkeypatch.setattr(module, "MANY_REGIONS", 0)
    found = _shown(world)
    for module in (snapshot_survey, flush_survey):
        monkeypatch.setattr(module, "unchanged_regions", lambda table, state: {})
    for module in (status, gc_at_rest, merge_survey, reader_survey, examiner):
        monkeypatch.setattr(module, "regions_at_rest", lambda table, state: {})

    assert found == _shown(world)
