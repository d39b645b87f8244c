"""Running a simulation and checking the table after every turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from memwal_core.errors import MemwalError
from testkit.simulation.actors.jobs import (
    ROUTINE,
    CleanupActor,
    ColumnActor,
    JobActor,
    MergeActor,
    SimulatedJob,
    TimeActor,
)
from testkit.simulation.actors.readers import ReaderActor
from testkit.simulation.actors.table_writers import TableWriterActor
from testkit.simulation.actors.writers import WriterActor
from testkit.simulation.model import WrongRowError
from testkit.simulation.progress import ProgressWatch
from testkit.simulation.schedule import Schedule
from testkit.simulation.world import BASE_KEYS, Actor, Chances, World
from testkit.tables.readable import DuplicateKeyError

_SHOWN_TURNS = 40
_DRIFTING, _PATIENT = 1, 0
FULL_CHECK_TURNS = 10


class Symptom(StrEnum):
    """What a simulation failed of."""

    WRONG_ROWS = "wrong rows"
    """A row was lost, doubled, resurrected or changed."""
    UNREADABLE = "unreadable rows"
    """What the table must show cannot be read: a file is gone or broken."""
    WENT_BACK = "progress went back"
    """Merge progress went back, or an index claims more than is merged."""
    FORGOTTEN = "forgotten freeze"
    """What a person froze goes on, or what a person thawed does not."""
    REPLACED = "replaced version"
    """What a rival had written of a region, a lease or the ledger was written over."""
    ERROR = "unexplained error"
    """An actor met an error that rivals and faults do not explain."""


class SimulationFailedError(AssertionError):
    """The table showed what no correct implementation could show.

    Attributes:
        seed: Replays the run.
        symptom: What it failed of.
        turn: The number of the turn after which it was seen.
        troubles: Turn -> how much it drew that goes wrong.
    """

    def __init__(self, world: World, symptom: Symptom, problem: str) -> None:
        """Compose the message: the seed first, then the problem, then the last turns."""
        self.seed = world.seed
        self.symptom = symptom
        self.turn = world.turn
        self.troubles = dict(world.troubles)
        listed = "\n".join(world.trace[-_SHOWN_TURNS:])
        super().__init__(f"seed {world.seed}: {symptom}: {problem}\nlast turns:\n{listed}")


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a run did.

    Attributes:
        seed: The seed.
        trace: One line for each turn's begin and end.
        versions: Table versions made.
        seen: How often something happened that the simulation exists for.
    """

    seed: int
    trace: tuple[str, ...]
    versions: int
    seen: Mapping[str, int]


def everybody(world: World) -> list[Actor]:
    """Return the usual actors: two writers that share a region, one of its own, a merger, all jobs, a reader, time.

    Nobody lays hands on the table, so that a freeze is a false alarm and fails the run.

    In some seeds the table's schema changes, too; in others much time passes, and versions are given up, so that
    garbage collection has something to collect. In four of seven seeds flushed MemTables share WAL entries: by links,
    or by name, where the store has none. In two of five two table writers write to all four regions.
    """
    more: list[Actor] = []
    routed: list[Actor] = []
    if world.is_routed:
        routed = [TableWriterActor(world, "table-writer-1"), TableWriterActor(world, "table-writer-2")]
    if world.seed % 4 == _DRIFTING:
        more = [ColumnActor(world, "columns")]
    elif world.seed % 2 == _PATIENT:
        more = [
            TimeActor(world, "more time"),
            CleanupActor(world, "versions"),
            JobActor(world, "collector", (SimulatedJob.MERGE, SimulatedJob.CATCH_UP, SimulatedJob.GC)),
        ]
    return [
        WriterActor(world, "writer-a", (0,)),
        WriterActor(world, "writer-b", (0,)),
        WriterActor(world, "writer-c", (1,)),
        MergeActor(world, "merger"),
        JobActor(world, "operator-1", ROUTINE),
        JobActor(world, "operator-2", (SimulatedJob.CATCH_UP, SimulatedJob.GC)),
        ReaderActor(world, "reader"),
        TimeActor(world, "time"),
        *more,
        *routed,
        JobActor(world, "caretaker", (SimulatedJob.FLUSH, SimulatedJob.REPAIR)),
    ]


def simulate(
    seed: int,
    directory: Path,
    *,
    schedule: Schedule | int = 60,
    chances: Chances | None = None,
    actors: Callable[[World], list[Actor]] = everybody,
    full_check_turns: int = FULL_CHECK_TURNS,
) -> SimulationResult:
    """Run one simulation.

    Args:
        seed: Decides everything.
        directory: An empty directory, best in memory.
        schedule: Turns of the outermost level, or how many of them.
        chances: How probable trouble is.
        actors: Makes the actors.
        full_check_turns: Compare all retained versions with the model after so many turns.

    Raises:
        SimulationFailedError: An acknowledged row was lost, resurrected or doubled, merge progress went
            back, or an actor met an error that nothing explains.
    """
    world = World(seed, directory, chances if chances is not None else Chances())
    world.actors = actors(world)
    watch = ProgressWatch()
    played = schedule if isinstance(schedule, Schedule) else Schedule.of(schedule)
    for number in played.turns:
        try:
            world.take_numbered_turn(number, played.troubles.get(number))
        except (WrongRowError, DuplicateKeyError) as error:
            raise SimulationFailedError(world, Symptom.WRONG_ROWS, str(error)) from error
        except Exception as error:
            raise SimulationFailedError(world, Symptom.ERROR, f"{type(error).__name__}: {error}") from error
        world.notice()
        check_progress(world, watch)
        check(world, every_version=number % full_check_turns == 0 or number == played.turns[-1])
    world.seen["WAL entry linked" if world.store.has_links else "WAL entry named"] += world.store.count("link")
    return SimulationResult(seed, tuple(world.trace), world.plain.state().version, world.seen)


def check_progress(world: World, watch: ProgressWatch) -> None:
    """Look at the versions that the last turn made.

    Raises:
        SimulationFailedError: Merge progress went back, or an index claims more than is merged.
    """
    with world.quietly():
        problems = watch.problems(world.view, world.restored)
    if problems:
        raise SimulationFailedError(world, Symptom.WENT_BACK, "; ".join(problems))


def check(world: World, *, every_version: bool) -> None:
    """Compare the table with the model, in its newest or in every retained version.

    A version shows its own base rows, and the flushed MemTables and WAL entries that it has not
    merged: together always the present state of the keys that regions have, whichever version one begins with. Not
    where keys were in regions of several specs in turn: an old version has merged neither row.

    Raises:
        SimulationFailedError: They differ.
    """
    with world.quietly():
        *older, newest = world.view.versions()
        for version in (newest, *reversed(older if every_version and not world.is_divided else [])):
            _check_version(world, version, is_newest=version == newest)
        wrong = world.freezes.mismatches(world.frozen())
        if wrong:
            raise SimulationFailedError(world, Symptom.FORGOTTEN, str(wrong))
    if world.contests.replaced:
        raise SimulationFailedError(world, Symptom.REPLACED, ", ".join(world.contests.replaced))


def _check_version(world: World, version: int, *, is_newest: bool) -> None:
    try:
        if world.view.details(version) is None:
            return  # Before MemWAL was enabled.
        found = world.model.mismatches(world.view.rows(version))
        mismatches = [each for each in found if is_newest or each.key not in BASE_KEYS]
    except DuplicateKeyError as error:
        raise SimulationFailedError(world, Symptom.WRONG_ROWS, f"version {version}: {error}") from error
    except (MemwalError, OSError, ValueError) as error:
        raise SimulationFailedError(world, Symptom.UNREADABLE, f"version {version}: {error}") from error
    if mismatches:
        raise SimulationFailedError(world, Symptom.WRONG_ROWS, f"version {version}: {mismatches}")
