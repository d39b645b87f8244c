"""A cycle of a table that nobody has changed since one that had nothing to do: a dozen requests, and no write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.errors import FrozenError
from memwal_core.format.paths import QUIET_PATH, region_directory
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle import job as cycle_job
from memwal_core.jobs.cycle.plan import CyclePlan, StepEnd, StepName, plan_cycle
from memwal_core.jobs.cycle.report import MaintainReport
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import GcSettings, Settings, StorageSettings
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import WRITES, FaultyStore
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people, with_clock
from testkit.tables.readable import keys_of

UNSYNCED = Settings(storage=StorageSettings(fsync=False))
REQUESTS = 7
"""Of ours: what the last cycle left, the record (3), a listing, and two for the newest version. Lance opens the table
twice, for two requests each."""


class _World:
    """A table that came to rest."""

    def __init__(self, uri: str, *, regions: int = 2, settings: Settings = UNSYNCED) -> None:
        self.uri, self.settings = uri, settings
        make_people_table(uri, rows=people(*range(20)), buckets=regions, settings=settings)
        # Files get real times: later than theirs, but not so late that what a cycle writes is old at once.
        self.clock = ManualClock(start=Table.open(uri).opened.clock.now() + timedelta(minutes=5))
        self.store = FaultyStore(open_store(uri, settings=settings.storage))
        self.writer: TableWriter | None = None
        self.write(*range(8 * regions))
        self.settle()

    def table(self, settings: Settings | None = None) -> Table:
        base = BaseTable.open(self.uri, store=self.store, settings=settings or self.settings)
        return Table(OpenTable.of(with_clock(base, self.clock)))

    def write(self, *ids: int) -> None:
        with TableWriter.open(BaseTable.open(self.uri, settings=self.settings)) as writer:
            writer.put(people(*ids, name="new"))
            writer.flush()

    def open_writer(self) -> TableWriter:
        if self.writer is None:
            table = BaseTable.open(self.uri, settings=self.settings)
            self.writer = TableWriter.open(table)
        return self.writer

    def cycle(self, settings: Settings | None = None, *, delete: bool = True) -> MaintainReport:
        table = self.table(settings)
        self.store.calls.clear()
        report: MaintainReport = table.run(MaintainRequest(delete=delete))
        return report

    def settle(self) -> None:
        for _ in range(6):
            if self.is_quiet(self.cycle()):
                return
        raise AssertionError("the table does not come to rest")

    def is_quiet(self, report: MaintainReport) -> bool:
        """Tell whether a cycle left everything out; one that did must not have written."""
        quiet = all(step.end is StepEnd.SKIPPED for step in report.steps)
        assert not (quiet and [call for call in self.store.calls if call.operation in WRITES])
        return quiet


@pytest.fixture
def world(tmp_path: Path) -> _World:
    return _World(str(tmp_path / "t"))


@pytest.mark.parametrize("regions", [1, 16])
def test_p8_an_idle_cycle_costs_the_same_at_any_number_of_regions(tmp_path: Path, regions: int) -> None:
    """It made 166 requests of ours and 36 writes at one region, and 15 requests more for each further one."""
    world = _World(str(tmp_path / "t"), regions=regions)
    assert len(world.table().opened.manifests.region_ids()) == regions

    report = world.cycle()
    assert len(world.store.calls) <= REQUESTS
    assert world.is_quiet(report)
    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert report.why().count("nothing has changed since the cycle of ") == 1
    assert "\n".join(report.view().lines()).count("nothing has changed since the cycle of ") == 1


def _by_lance(world: _World) -> None:
    lance.dataset(world.uri).delete("id = 3")


def _added_region(world: _World) -> None:
    write_native_generations(world.uri, native_region_id(1), [[Put(people(50, name="theirs"))]])


def _removed_region(world: _World) -> None:
    first = world.table().opened.manifests.region_ids()[0]
    shutil.rmtree(Path(world.uri) / region_directory(first))


def _claimed(world: _World) -> None:
    with TableWriter.open(BaseTable.open(world.uri, settings=UNSYNCED)) as writer:
        writer.put(people(1, name="later"))  # Nothing is flushed: the claim alone changes the manifest.


def _configured(world: _World) -> None:
    table = world.table()
    table.configuration.add_region_spec(bucket_spec(2, "id", table.base.state().field_ids, 3))


def _restored(world: _World) -> None:
    dataset = lance.dataset(world.uri, version=lance.dataset(world.uri).version - 1)
    dataset.restore()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("change", ["nothing", "a row"])
def test_a_writer_that_lives_on_keeps_the_table_awake_by_rows_alone(world: _World, change: str) -> None:
    writer = world.open_writer()
    writer.put(people(1, 2, name="later"))
    writer.flush()
    for _ in range(2):  # The second time, the cycle looks into WALs.
        world.settle()
        world.clock.advance(1200)
    assert world.is_quiet(world.cycle())
    if change == "a row":
        writer.put(people(1, name="last"))
    assert world.is_quiet(world.cycle()) is (change == "nothing")
    writer.close()


CHANGES: dict[str, Callable[[_World], object]] = {
    "rows flushed": lambda world: world.write(1),
    "a commit of Lance": _by_lance,
    "a region of another client": _added_region,
    "a region removed": _removed_region,
    "a region claimed": _claimed,
    "a region spec": _configured,
    "a version restored": _restored,
    "an hour": lambda world: world.clock.advance(3600),
    "a clock that went back": lambda world: world.clock.jump_wall_time(-7200),
    "a freeze": lambda world: world.table().freeze("look at it", by="someone"),
    "the mark forged": lambda world: world.store.put(QUIET_PATH, b'{"record": 1, "until": "9999-01-01"}'),
    "the mark zeroed": lambda world: world.store.put(QUIET_PATH, bytes(100)),
    "the mark removed": lambda world: world.store.delete(QUIET_PATH),
    "the record removed": lambda world: shutil.rmtree(Path(world.uri) / "_mem_wal" / "_record"),
}


_OFTEN = {"rows flushed", "a commit of Lance", "a region of another client", "an hour", "a freeze"}


@pytest.mark.parametrize(
    "change", [pytest.param(each, marks=() if each in _OFTEN else (pytest.mark.slow,)) for each in CHANGES]
)
def test_whatever_changes_makes_the_next_cycle_look(world: _World, change: str) -> None:
    assert world.is_quiet(world.cycle())
    CHANGES[change](world)

    assert not world.is_quiet(world.cycle())


def test_other_settings_and_another_request_are_not_left_out(world: _World) -> None:
    assert not world.is_quiet(world.cycle(delete=False))
    world.settle()
    assert not world.is_quiet(world.cycle(Settings(storage=UNSYNCED.storage, gc=GcSettings(manifest_retention=21))))


def test_a_copy_is_not_quiet_because_its_original_was(world: _World, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world.uri, copy)
    table = Table(OpenTable.of(with_clock(BaseTable.open(str(copy), settings=UNSYNCED), world.clock)))

    report = table.run(MaintainRequest(delete=True))
    assert any(step.end is StepEnd.RAN for step in report.steps)


def test_generations_that_wait_keep_the_table_awake(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that waits for more generations has nothing to do, and is due when the oldest is old enough."""

    def without_merge(request: MaintainRequest, settings: Settings) -> CyclePlan:
        plan = plan_cycle(request, settings)
        return replace(plan, steps=tuple(step for step in plan.steps if step.name is not StepName.MERGE))

    monkeypatch.setattr(cycle_job, "plan_cycle", without_merge)
    world.write(1)
    reports = [world.cycle() for _ in range(4)]
    assert reports[-1].outcome is JobOutcome.NOTHING_TO_DO
    assert not any(map(world.is_quiet, reports))


def test_a_frozen_table_says_so(world: _World) -> None:
    world.table().freeze("look at it", by="someone")

    assert world.cycle().outcome is JobOutcome.FROZEN
    with pytest.raises(FrozenError):
        world.table().run(MergeRequest())


_STEPS = ["write", "write", "delete", "merge", "compact", "collect", "snapshot", "time", "lance", "cycle", "cycle"]


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=4)
@given(history=st.lists(st.sampled_from(_STEPS), min_size=3, max_size=8))
def test_a_cycle_that_is_left_out_would_have_had_nothing_to_do(
    tmp_path_factory: pytest.TempPathFactory, history: list[str]
) -> None:
    world = _World(str(tmp_path_factory.mktemp("quiet") / "t"))
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: world.write(1, 2, 3),
        "delete": lambda: lance.dataset(world.uri).delete("id > 15"),
        "merge": lambda: world.table().run(MergeRequest()),
        "compact": lambda: world.table().run(CompactRequest()),
        "collect": lambda: world.table().run(GcRequest()),
        "snapshot": lambda: world.table().lookup(keys_of(1)),
        "time": lambda: world.clock.advance(200),
        "lance": lambda: lance.dataset(world.uri).create_scalar_index("id", "BTREE", replace=True),
        "cycle": world.cycle,
    }
    for step in (*history, "cycle"):
        steps[step]()
        planned = world.table().run(MaintainRequest(delete=True, dry_run=True)).outcome
        if world.is_quiet(world.cycle()):
            assert planned is JobOutcome.NOTHING_TO_DO
    world.settle()
    assert world.table().run(MaintainRequest(delete=True, dry_run=True)).outcome is JobOutcome.NOTHING_TO_DO
