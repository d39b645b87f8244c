"""Actors that maintain: each turn is one run of a background job."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pyarrow as pa

from memwal_core.base_table import remove_versions
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.run import MergeContext, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region import ManifestStore
from memwal_core.table import Table
from testkit.faults.rival_mergers import Silent, commit_here
from testkit.simulation.small import LONG_SLEEP_S, RETENTION_S
from testkit.simulation.world import Actor, World

_COLUMNS_ADDED = 2


class SimulatedJob(StrEnum):
    """A background job as an operator starts it: with its lease, through the facade."""

    MERGE = "merge"
    SNAPSHOT = "snapshot"
    CATCH_UP = "catch-up"
    COMPACT = "compact"
    GC = "gc"
    FLUSH = "flush"
    REPAIR = "repair"


ROUTINE = (
    SimulatedJob.MERGE,
    SimulatedJob.SNAPSHOT,
    SimulatedJob.CATCH_UP,
    SimulatedJob.COMPACT,
    SimulatedJob.GC,
)
"""What a table needs all the time."""


class JobActor(Actor):
    """Runs one of the jobs at each turn, under the settings of the world.

    Args:
        world: Where it lives.
        name: Its name.
        jobs: Which jobs it runs.
    """

    def __init__(self, world: World, name: str, jobs: tuple[SimulatedJob, ...]) -> None:
        """Keep the parts."""
        super().__init__(world, name)
        self._jobs = jobs

    def turn(self) -> str:
        """Run one job."""
        world = self._world
        admin = Table(OpenTable.of(world.table))
        job = world.rng.choice(self._jobs)
        outcome = _RUNS[job](admin, world)
        world.seen[f"{job} {outcome}"] += 1
        return f"{job} {outcome}"


def _merge(admin: Table, world: World) -> str:
    del world
    return str(admin.run(MergeRequest()).outcome)


def _snapshot(admin: Table, world: World) -> str:
    del world
    return str(admin.run(SnapshotRequest()).outcome)


def _catch_up(admin: Table, world: World) -> str:
    del world
    return str(admin.run(CatchupRequest()).outcome)


def _compact(admin: Table, world: World) -> str:
    request = CompactRequest(force=True, remove_versions=world.rng.random() < 0.5)
    return str(admin.run(request).outcome)


def _flush(admin: Table, world: World) -> str:
    report = admin.run(FlushRequest(fence=world.rng.random() < 0.5))
    world.seen["region flushed by a job"] += len(report.flushed)
    return str(report.outcome)


def _repair(admin: Table, world: World) -> str:
    return str(admin.run(RepairRequest(duplicates=world.rng.random() < 0.5)).outcome)


def _collect(admin: Table, world: World) -> str:
    report = admin.run(GcRequest(dry_run=False))
    world.seen.update({f"collected {kind}": tally.items for kind, tally in report.done.items()})
    return str(report.outcome)


_RUNS: dict[SimulatedJob, Callable[[Table, World], str]] = {
    SimulatedJob.MERGE: _merge,
    SimulatedJob.SNAPSHOT: _snapshot,
    SimulatedJob.CATCH_UP: _catch_up,
    SimulatedJob.COMPACT: _compact,
    SimulatedJob.GC: _collect,
    SimulatedJob.FLUSH: _flush,
    SimulatedJob.REPAIR: _repair,
}


class MergeActor(Actor):
    """A merger without a lease, one of several that know nothing of each other."""

    def turn(self) -> str:
        """Run one merge."""
        world = self._world
        settings = world.settings.merge
        manifests = ManifestStore(
            world.store, world.ids, settings=world.settings.storage, clock=world.clock, rng=world.rng
        )
        parts = MergeContext(
            table=world.table,
            surveyor=MergeSurveyor(world.table, world.store, manifests, world.settings.storage.concurrency),
            settings=settings,
            clock=world.clock,
            progress=Silent(),
            commit=SingleCommit(commit_here(world.table, settings, world.clock, world.rng, world.failpoints)),
        )
        report = merge(parts)
        world.seen[f"merge without a lease {report.outcome}"] += 1
        return f"merge {report.outcome}"


class ColumnActor(Actor):
    """Somebody who adds a column while writers and generations hold rows without it."""

    def __init__(self, world: World, name: str) -> None:
        """Keep the parts."""
        super().__init__(world, name)
        self._added = 0

    def turn(self) -> str:
        """Add a column, or do nothing once there are enough.

        Between other turns only: one that is interrupted by a change of the schema would compare its
        own plan with a table that it never saw, which the jobs refuse and repeat.
        """
        world = self._world
        if world.is_interrupting or self._added == _COLUMNS_ADDED:
            return "does nothing"
        self._added += 1
        with world.quietly():
            world.plain.dataset().add_columns(pa.field(f"added_{self._added}", pa.int32()))
        world.has_drifted = True
        world.seen["column added"] += 1
        return f"added the column added_{self._added}"


class CleanupActor(Actor):
    """Somebody who removes old versions of the base table, so that garbage collection may take what they needed."""

    def turn(self) -> str:
        """Remove the versions that are older than anything that is under way."""
        world = self._world
        with world.quietly():
            old = world.old_versions(RETENTION_S)
            removed = remove_versions(world.plain, old).versions
        world.seen["version removed"] += removed
        return f"removed {removed} versions"


class TimeActor(Actor):
    """Lets time pass: short waits always, retention times only between turns."""

    def turn(self) -> str:
        """Let some time pass."""
        world = self._world
        # No flush, merge or commit takes as long as a retention time: that is what retention is for.
        seconds = world.rng.choice((1.0, 30.0, 7200.0) if world.is_interrupting else (30.0, 7200.0, LONG_SLEEP_S))
        world.clock.advance(seconds)
        return f"{seconds:.0f} s pass"
