"""Running a simulation and checking the table after every turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memwal_core.errors import MemwalError
from memwal_core.testing.simulation.jobs import MergeActor
from memwal_core.testing.simulation.view import DuplicateKeyError, lsm_view
from memwal_core.testing.simulation.world import Actor, Chances, World
from memwal_core.testing.simulation.writers import WriterActor

_SHOWN_TURNS = 40


class SimulationFailedError(AssertionError):
    """The table showed what no correct implementation could show.

    Attributes:
        seed: Replays the run.
    """

    def __init__(self, seed: int, problem: str, trace: Sequence[str]) -> None:
        """Compose the message: the seed first, then the problem, then the last turns."""
        self.seed = seed
        listed = "\n".join(trace[-_SHOWN_TURNS:])
        super().__init__(f"seed {seed} (replay: MEMWAL_SIM_SEEDS={seed}): {problem}\nlast turns:\n{listed}")


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a run did.

    Attributes:
        seed: The seed.
        trace: One line for each turn's begin and end.
        versions: Table versions made.
    """

    seed: int
    trace: tuple[str, ...]
    versions: int


def everybody(world: World) -> list[Actor]:
    """Return the usual actors: two writers that share a region, one of its own, and two mergers."""
    return [
        WriterActor(world, "writer-a", (0,)),
        WriterActor(world, "writer-b", (0,)),
        WriterActor(world, "writer-c", (1,)),
        MergeActor(world, "merger-1"),
        MergeActor(world, "merger-2"),
    ]


def simulate(
    seed: int,
    directory: Path,
    *,
    turns: int = 60,
    chances: Chances | None = None,
    actors: Callable[[World], list[Actor]] = everybody,
) -> SimulationResult:
    """Run one simulation.

    Args:
        seed: Decides everything.
        directory: An empty directory, best in memory.
        turns: Turns of the outermost level.
        chances: How probable trouble is.
        actors: Makes the actors.

    Raises:
        SimulationFailedError: An acknowledged row was lost, resurrected or doubled, or an actor met an
            error that nothing explains.
    """
    world = World(seed, directory, chances if chances is not None else Chances())
    world.actors = actors(world)
    for _ in range(turns):
        try:
            world.take_turn(world.rng.choice(world.actors))
        except MemwalError as error:
            raise SimulationFailedError(seed, f"{type(error).__name__}: {error}", world.trace) from error
        world.store.notice()
        check(world)
    return SimulationResult(seed, tuple(world.trace), world.plain.state().version)


def check(world: World) -> None:
    """Compare every retained version of the table with the model.

    A version shows its own base rows, and the flushed MemTables and WAL entries that it has not
    merged: together always the present state, whichever version one begins with.

    Raises:
        SimulationFailedError: They differ.
    """
    with world.quietly():
        for version in [None, *(entry["version"] for entry in world.plain.dataset().versions()[:-1])]:
            if version is not None and world.plain.state(version).details is None:
                continue  # Before MemWAL was enabled.
            try:
                mismatches = world.model.mismatches(lsm_view(world.plain, version))
            except (DuplicateKeyError, MemwalError, OSError, ValueError) as error:
                raise SimulationFailedError(world.seed, f"version {version}: {error}", world.trace) from error
            if mismatches:
                raise SimulationFailedError(world.seed, f"version {version or 'newest'}: {mismatches}", world.trace)
