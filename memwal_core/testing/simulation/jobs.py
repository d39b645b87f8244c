"""Actors that maintain: each turn is one run of a background job."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from memwal_core.admin import CatchupRequest, CompactRequest, GcRequest, MergeRequest, TableAdmin
from memwal_core.maintenance.merge import (
    InProcessReader,
    InProcessWorkers,
    MergeParts,
    NativeCommit,
    Silent,
    SingleCommit,
    SingleCommitParts,
    Surveyor,
    merge,
)
from memwal_core.manifest import ManifestStore
from memwal_core.testing.simulation.world import LONG_SLEEP_S, World


class Job(StrEnum):
    """A background job as an operator starts it: with its lease, through the facade."""

    MERGE = "merge"
    SNAPSHOT = "snapshot"
    CATCH_UP = "catch-up"
    COMPACT = "compact"
    GC = "gc"


class JobActor:
    """Runs one of the jobs at each turn, under the settings of the world.

    Args:
        world: Where it lives.
        name: Its name.
        jobs: Which jobs it runs.
    """

    def __init__(self, world: World, name: str, jobs: tuple[Job, ...] = tuple(Job)) -> None:
        """Keep the parts."""
        self.name = name
        self._world = world
        self._jobs = jobs

    def turn(self) -> str:
        """Run one job."""
        world = self._world
        admin = TableAdmin(world.table, world.settings, world.clock, world.rng)
        job = world.rng.choice(self._jobs)
        return f"{job} {_RUNS[job](admin, world)}"

    def die(self) -> None:
        """Forget nothing: what a job knows is in the store. Its lease stays until it expires."""


def _merge(admin: TableAdmin, world: World) -> str:
    del world
    return str(admin.merge(MergeRequest()).outcome)


def _snapshot(admin: TableAdmin, world: World) -> str:
    del world
    return str(admin.build_snapshot().outcome)


def _catch_up(admin: TableAdmin, world: World) -> str:
    del world
    return str(admin.catch_up(CatchupRequest()).outcome)


def _compact(admin: TableAdmin, world: World) -> str:
    request = CompactRequest(force=True, remove_versions=world.rng.random() < 0.5)
    return str(admin.compact(request).outcome)


def _collect(admin: TableAdmin, world: World) -> str:
    del world
    return str(admin.collect_garbage(GcRequest(dry_run=False)).outcome)


_RUNS: dict[Job, Callable[[TableAdmin, World], str]] = {
    Job.MERGE: _merge,
    Job.SNAPSHOT: _snapshot,
    Job.CATCH_UP: _catch_up,
    Job.COMPACT: _compact,
    Job.GC: _collect,
}


class MergeActor:
    """A merger without a lease, one of several that know nothing of each other."""

    def __init__(self, world: World, name: str) -> None:
        """Keep the parts."""
        self.name = name
        self._world = world

    def turn(self) -> str:
        """Run one merge."""
        world = self._world
        settings = world.settings.merge
        manifests = ManifestStore(
            world.store, world.ids, settings=world.settings.storage, clock=world.clock, rng=world.rng
        )
        parts = MergeParts(
            table=world.table,
            surveyor=Surveyor(world.table, world.store, manifests, world.settings.storage.concurrency),
            reader=InProcessReader(world.store.storage_options),
            strategy=NativeCommit(world.clock, world.rng, settings.max_attempts, world.reach),
            settings=settings,
            clock=world.clock,
            progress=Silent(),
            single_commit=SingleCommit(
                SingleCommitParts(
                    table=world.table,
                    workers=InProcessWorkers(world.table),
                    settings=settings,
                    clock=world.clock,
                    rng=world.rng,
                    reach=world.reach,
                )
            ),
        )
        report = merge(parts)
        return f"merge {report.outcome} ({report.strategy})"

    def die(self) -> None:
        """Forget nothing: a merger has no memory."""


class TimeActor:
    """Lets time pass: short waits always, retention times only between turns.

    Args:
        world: Where it lives.
        name: Its name.
    """

    def __init__(self, world: World, name: str) -> None:
        """Keep the parts."""
        self.name = name
        self._world = world

    def turn(self) -> str:
        """Let some time pass."""
        world = self._world
        # No flush, merge or commit takes as long as a retention time: that is what retention is for.
        seconds = world.rng.choice((1.0, 30.0, 7200.0) if world.is_interrupting else (30.0, 7200.0, LONG_SLEEP_S))
        world.clock.advance(seconds)
        return f"{seconds:.0f} s pass"

    def die(self) -> None:
        """Time does not die."""
