"""Programs that replace the whole content of the base table, and people who enable MemWAL on it again."""

from __future__ import annotations

import lance

from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import CommitUnknownError
from memwal_core.jobs.context import OpenTable
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from testkit.simulation.actors.restorers import choose
from testkit.simulation.contests import WriteKind
from testkit.simulation.world import OVERWRITTEN, Actor


class OverwriterActor(Actor):
    """Reads all rows of the base table and writes them back as its whole content, which drops every index.

    Some turns later somebody enables MemWAL again, and ends the freeze. The rows are those that were there, and what
    was not yet merged still waits, so that every row stays right.
    """

    contests = WriteKind.BASE_VERSION

    def turn(self) -> str:
        """Enable MemWAL, or end the freeze, if the index is gone; else overwrite the table."""
        world = self._world
        table = Table(OpenTable.of(world.table))
        if world.plain.state().details is None:
            table.enable([bucket_spec(1, "id", world.plain.state().field_ids, world.buckets)])
            world.seen["enabled again"] += 1
            return "enabled MemWAL again"
        causes = {each.cause for each in table.opened.freezes.active()}
        for cause in (FreezeCause.INDEX_GONE, FreezeCause.INDEX_MADE_ANEW):
            if cause in causes:
                # A version that was restored meanwhile has not merged what was merged before.
                choices = (Choice.MERGE_AGAIN,) if world.seen["version restored"] else _CHOICES
                choice = choose(table, self.name, cause, world.rng.choice(choices))
                world.seen["thawed after an overwrite"] += 1
                return f"ended the freeze {cause} with {choice}"
        return self._overwrite()

    def _overwrite(self) -> str:
        world = self._world
        dataset = world.plain.dataset()
        try:
            made = lance.write_dataset(dataset.to_table(), dataset.uri, mode="overwrite")
        except (OSError, RuntimeError, ValueError) as error:
            raise CommitUnknownError("Lance did not write", remedy="look again", error=str(error)) from error
        world.seen[OVERWRITTEN] += 1
        return f"overwrote the table as version {made.version}"


_CHOICES = (Choice.MERGE_AGAIN, Choice.RESTORE_PROGRESS)
