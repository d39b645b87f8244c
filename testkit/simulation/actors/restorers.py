"""People who make an older version of the base table the newest, and decide what becomes of the freeze that follows."""

from __future__ import annotations

from memwal_core.coordination.freeze import Choice, FreezeCause, FreezeStore
from memwal_core.errors import CommitUnknownError, ConflictError
from memwal_core.ids import IdSource
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.table import Table
from testkit.simulation.contests import WriteKind
from testkit.simulation.model import Value
from testkit.simulation.view import base_rows
from testkit.simulation.world import BASE_KEYS, Actor


class RestorerActor(Actor):
    """Restores a version with Lance's own call, which nothing interrupts; or ends the freeze that a job answered with.

    The flushed MemTables that the restored version has not merged are there, because it was retained: with them it
    shows the present state of all regions. So every row stays right, whoever was about to commit.
    """

    contests = WriteKind.BASE_VERSION

    def turn(self) -> str:
        """Thaw the table, if a restore froze it; else restore a version."""
        world = self._world
        freezes = FreezeStore(world.plain.store, IdSource(), clock=world.clock).active()
        went_back = FreezeCause.PROGRESS_WENT_BACK
        return self._thaw(went_back) if any(each.cause is went_back for each in freezes) else self._restore()

    def _restore(self) -> str:
        world = self._world
        newest = world.plain.state()
        states = [world.plain.state(entry["version"]) for entry in world.plain.dataset().versions()][:-1]
        # A column that goes away again is another story: writers hold rows that have it.
        versions = [each.version for each in states if each.details is not None and each.schema == newest.schema]
        if not versions:
            return "has no version to restore"
        version = world.rng.choice(versions)
        rows = base_rows(world.plain, version)
        writes: dict[int, Value] = {key: rows.get(key) for key in BASE_KEYS}
        since = world.model.begin(writes)
        try:
            world.plain.dataset(version).restore()  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError, ValueError) as error:
            world.model.in_doubt(writes, self)
            world.model.settled(self)
            raise CommitUnknownError("Lance did not restore", remedy="look again", error=str(error)) from error
        world.model.acknowledged(since, writes, self)
        world.restored.add(world.plain.dataset().version)
        world.seen["version restored"] += 1
        return f"restored version {version} as {world.plain.dataset().version}"

    def _thaw(self, cause: FreezeCause) -> str:
        world = self._world
        table = Table(OpenTable.of(world.table))
        choice = choose(table, self.name, cause, Choice.MERGE_AGAIN)
        world.seen["thawed after a restore"] += 1
        return f"ended the freeze {cause} with {choice}"


def choose(table: Table, by: str, cause: FreezeCause, choice: Choice) -> Choice:
    """End the freezes of a cause, and return the choice.

    Raises:
        ConflictError: Something stands in the way of it.
    """
    report = table.thaw(Decision(choice, by, cause))
    if report.outcome not in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}:
        raise ConflictError("the table stays frozen", remedy="look again", obstacles=report.obstacles)
    return choice
