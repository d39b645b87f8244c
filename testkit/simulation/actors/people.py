"""People who stop every job of a table, and let them go on."""

from __future__ import annotations

from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import ConflictError, MemwalError
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.table import Table
from testkit.faults.failpoints import SimulatedCrash
from testkit.simulation.contests import WriteKind
from testkit.simulation.model import Value
from testkit.simulation.world import FREEZE_KEY, FROZEN, Actor

_MOMENTARY = 0.8


class PersonActor(Actor):
    """Freezes the table, mostly for a moment, and thaws it if it is frozen."""

    contests = WriteKind.FREEZE

    def turn(self) -> str:
        """Freeze the table, or thaw it if it is frozen."""
        table = Table(OpenTable.of(self._world.table))
        if any(freeze.cause is FreezeCause.BY_HAND for freeze in table.opened.freezes.active()):
            return self._decide(table, is_frozen=False)
        done = self._decide(table, is_frozen=True)
        # A freeze that is to be lost to whoever was interrupted has to last.
        if self._world.contested is not WriteKind.FREEZE and self._world.rng.random() < _MOMENTARY:
            done += ", " + self._decide(table, is_frozen=False)
        return done

    def _decide(self, table: Table, *, is_frozen: bool) -> str:
        world = self._world
        wanted: dict[int, Value] = {FREEZE_KEY: FROZEN if is_frozen else None}
        since = world.freezes.begin(wanted)
        try:
            self._apply(table, is_frozen=is_frozen)
        except (MemwalError, SimulatedCrash):
            world.freezes.in_doubt(wanted, self)
            world.freezes.settled(self)  # A person who got no answer looks again, and decides anew.
            raise
        world.freezes.acknowledged(since, wanted, self)
        done = "froze the table" if is_frozen else "thawed the table"
        world.seen[f"person {done}"] += 1
        return done

    def _apply(self, table: Table, *, is_frozen: bool) -> None:
        if is_frozen:
            table.freeze("the simulation wants it", by=self.name)
            return
        report = table.thaw(Decision(Choice.ACCEPT, self.name, FreezeCause.BY_HAND))
        if report.outcome not in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}:
            raise ConflictError("the table stays frozen", remedy="look again", obstacles=report.obstacles)
