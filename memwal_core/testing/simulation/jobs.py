"""Actors that maintain: each turn is one run of a background job."""

from __future__ import annotations

from memwal_core.maintenance.merge import InProcessReader, MergeParts, NativeCommit, Silent, Surveyor, merge
from memwal_core.manifest import ManifestStore
from memwal_core.testing.simulation.world import World


class MergeActor:
    """A merger, one of several that know nothing of each other."""

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
        )
        report = merge(parts)
        return f"merge {report.outcome}"

    def die(self) -> None:
        """Forget nothing: a merger has no memory."""
