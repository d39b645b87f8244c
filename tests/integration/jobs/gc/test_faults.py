"""Garbage collection that fails, dies, or loses its lease half-way."""

from __future__ import annotations

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseStore
from memwal_core.errors import ConflictError, FencedError
from memwal_core.format.paths import generation_path, region_directory
from memwal_core.ids import IdSource
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Action, FreeingRule, Item, Kind
from memwal_core.jobs.gc.kinds.directories import UnrecordedDirectories
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.gc.run import collect_garbage
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import GcSettings, LeaseSettings, WalCollection
from testkit.faults.failpoints import SimulatedCrash
from testkit.faults.faulty_store import Call, FaultyStore, Moment
from testkit.faults.faulty_store import Rule as Fault
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import MERGED_ROWS, OLD_S, collect, gc_admin, later, make_merged_table, only_region, policy

ORPHAN = FreeingRule.ORPHAN
NOW = GcSettings(collect_wal=WalCollection.ALL, grace_s=0)


@pytest.fixture
def uri(tmp_path) -> str:
    return make_merged_table(str(tmp_path / "t")).uri


@pytest.fixture
def store(uri) -> FaultyStore:
    return FaultyStore(gc_admin(uri).base.store)


def left(uri: str, kind: str) -> int:
    """Return how many WAL entries or directories of flushed MemTables there are."""
    admin = gc_admin(uri)
    home = f"{region_directory(only_region(admin))}/"
    paths = [info.path.removeprefix(home) for info in admin.base.store.list_objects(home.rstrip("/"))]
    return len({path if kind == "wal" else path.partition("/")[0] for path in paths if kind in path.partition("/")[0]})


def guarded(uri: str, store: FaultyStore, check) -> JobContext:
    return JobContext(gc_admin(uri, settings=NOW, store=store).opened, check)


@pytest.mark.req("GC-21", "LEASE-38")
@pytest.mark.parametrize(("part", "kind"), [("_gen_", "_gen_"), ("/wal/", "wal")])
def test_failed_deletion_is_reported_and_a_later_run_removes_the_rest(uri, store, part, kind, caplog):
    store.fail("delete", "delete_directory", path=lambda path: part in path)
    admin = gc_admin(uri, store=store)

    report = collect(admin)

    assert report.outcome is JobOutcome.CONFLICT
    assert report.outcome.exit_code == 4
    assert len(report.failures) == 1
    assert "a later run tries again" in caplog.text
    assert left(uri, kind) == {"_gen_": 1, "wal": 2}[kind]  # The newest WAL entry always stays.
    assert collect(admin).outcome is JobOutcome.DONE
    assert (left(uri, "_gen_"), left(uri, "wal")) == (0, 1)


@pytest.mark.req("GC-08", "GC-21")
def test_wal_entries_of_a_directory_that_could_not_be_deleted_stay(uri, store):
    """Entry 1 belongs to generation 1 alone; as long as its directory is there, so is the entry."""
    store.fail("delete_directory", path=lambda path: path.endswith("_gen_1"), times=None)

    report = collect(gc_admin(uri, store=store))

    assert report.done[Kind.DIRECTORY].items == 2
    assert report.done[Kind.WAL_ENTRY].items == 1
    assert left(uri, "wal") == 2


@pytest.mark.req("GC-22")
def test_deletion_whose_reply_was_lost_counts_as_done_next_time(uri, store):
    store.lose_reply("delete_directory", "delete", path=lambda path: "_gen_" in path or "/wal/" in path, times=None)
    assert collect(gc_admin(uri, store=store)).outcome is JobOutcome.CONFLICT
    store.heal()

    report = collect(gc_admin(uri, store=store))

    assert report.failures == ()
    assert (left(uri, "_gen_"), left(uri, "wal")) == (0, 1)
    assert lsm_view(gc_admin(uri).base) == MERGED_ROWS


@pytest.mark.req("GC-20")
@pytest.mark.parametrize("place", ["after the drain", "between directories", "between WAL entries"])
def test_crash_anywhere_leaves_garbage_and_no_loss(uri, store, place):
    nth, path = {
        "after the drain": (1, "_gen_"),
        "between directories": (2, "_gen_"),
        "between WAL entries": (2, "/wal/"),
    }[place]

    def die(call: Call) -> None:
        raise SimulatedCrash(call.path)

    store.add(
        Fault(
            die, Moment.BEFORE, frozenset({"delete", "delete_directory"}), path=lambda p: path in p, nth=nth, times=None
        )
    )
    with pytest.raises(SimulatedCrash):
        collect_garbage(guarded(uri, store, lambda: None))
    admin = gc_admin(uri)
    assert admin.opened.manifests.load(only_region(admin)).flushed_generations == ()
    assert lsm_view(admin.base) == MERGED_ROWS

    collect_garbage(guarded(uri, FaultyStore(store.inner), lambda: None))

    assert (left(uri, "_gen_"), left(uri, "wal")) == (0, 1)
    assert lsm_view(admin.base) == MERGED_ROWS


def test_base_table_that_cannot_be_synced_stops_the_drain(uri, store):
    store.fail("sync_objects", path=lambda path: path.startswith("data/"), times=None)

    report = collect(gc_admin(uri, store=store))

    assert report.outcome is JobOutcome.CONFLICT
    assert len(report.failures) == 3
    assert left(uri, "_gen_") == 3
    admin = gc_admin(uri)
    assert len(admin.opened.manifests.load(only_region(admin)).flushed_generations) == 3


@pytest.mark.req("GC-30")
def test_lost_lease_stops_before_the_commit(uri, store):
    def lost() -> None:
        raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        collect_garbage(guarded(uri, store, lost))

    assert store.count("put_if_absent", "put", "delete", "delete_directory") == 0


@pytest.mark.req("GC-30")
@pytest.mark.parametrize("checks", [1, 2, 4, 5])
def test_lease_lost_between_commit_and_deletion_stops_the_deletion(uri, store, checks):
    """The first check comes before the drain, the next three before the directories."""
    seen = []

    def check() -> None:
        seen.append(1)
        if len(seen) > checks:
            raise FencedError("the lease is lost", remedy="stop")

    with pytest.raises(FencedError):
        collect_garbage(guarded(uri, store, check))

    assert store.count("delete", "delete_directory") <= checks - 1
    assert lsm_view(gc_admin(uri).base) == MERGED_ROWS


@pytest.mark.req("GC-30")
def test_zombie_whose_lease_was_taken_deletes_nothing_more(uri, store):
    """Another run takes the lease over right after the zombie's drain."""
    admin = gc_admin(uri, store=store)
    leases = LeaseStore(store.inner, IdSource(), settings=LeaseSettings(), clock=later(2 * OLD_S))
    store.add(
        Fault(
            lambda _: leases.acquire(JobKey("gc"), "successor"),
            Moment.AFTER,
            frozenset({"put_if_absent"}),
            path=lambda path: "/manifest/" in path,
        )
    )

    with pytest.raises(FencedError):
        admin.run(GcRequest(dry_run=False), holder="zombie")

    assert left(uri, "_gen_") == 3
    assert left(uri, "wal") == 3


def test_second_collection_at_the_same_time_is_refused(uri):
    admin = gc_admin(uri)
    leases = LeaseStore(admin.base.store, IdSource(), settings=LeaseSettings(), clock=later(OLD_S))

    with leases.acquire(JobKey("gc"), "other"), pytest.raises(ConflictError) as raised:
        collect(admin)

    assert raised.value.facts["holder"] == "other"
    assert left(uri, "_gen_") == 3


@pytest.mark.req("GC-16")
def test_directory_that_was_recorded_since_it_was_planned_stays(uri, store):
    """A writer whose flush was taken for a failed one may record it while garbage is being collected."""
    context = guarded(uri, store, lambda: None)
    surveyor = GcSurveyor.of(context)
    state = surveyor.survey()
    (region,) = surveyor.manifests.load_many(surveyor.manifests.region_ids())
    recorded = region.flushed_generations[0]
    planned = [
        Item(Kind.DIRECTORY, generation_path(region.region_id, name), 1, region.region_id, 1, 1, Action.DELETE, ORPHAN)
        for name in (recorded.path, "deadbeef_gen_1")
    ]
    deleter = Deleter(surveyor, policy(), state.base, context.guard)

    UnrecordedDirectories().collect(planned, deleter)

    assert [call.path for call in store.calls if call.operation == "delete_directory"] == [planned[1].path]
    assert lsm_view(gc_admin(uri).base) == MERGED_ROWS
