"""The scenes of a simulation: everybody at work, rivals at the compare-and-swaps, strangers, a table divided anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memwal_core.format.memwal_index.configure import with_region_spec
from memwal_core.region.spec import bucket_spec
from testkit.rng import seeded_rng
from testkit.simulation.actors.base_writers import BaseWriterActor
from testkit.simulation.actors.jobs import ROUTINE, JobActor, MergeActor, SimulatedJob, TimeActor
from testkit.simulation.actors.overwriters import OverwriterActor
from testkit.simulation.actors.people import PersonActor
from testkit.simulation.actors.readers import ReaderActor
from testkit.simulation.actors.restorers import RestorerActor
from testkit.simulation.actors.searchers import SearcherActor
from testkit.simulation.actors.strangers import STRANGERS
from testkit.simulation.actors.table_writers import TableWriterActor
from testkit.simulation.actors.writers import WriterActor
from testkit.simulation.schedule import Schedule
from testkit.simulation.simulate import SimulationResult, everybody, simulate
from testkit.simulation.world import BASE_KEYS, Actor, Chances, World

ROUGH = Chances(interleave=0.1, fail=0.03, crash=0.02, lance=0.06)
AIMED = Chances(interleave=0.01, fail=0.002, crash=0.001, lance=0.01, aim=0.7)
"""Turns interrupt each other where it hurts, and seldom elsewhere."""
_ROUGH_EVERY = 3
_DRAWN = 0.5
_NEW_SPEC = 2


def rivals(world: World) -> list[Actor]:
    """Return at least two actors for everything that is written under a condition; some take more turns than others."""
    writers: list[Actor] = [WriterActor(world, f"writer-{number}", (number % 2,)) for number in range(4)]
    writers += writers[:2] * 3
    if world.is_routed:
        writers += [TableWriterActor(world, f"table-writer-{number}") for number in range(2)]
    return [
        *writers,
        MergeActor(world, "merger-1"),
        JobActor(world, "merger-2", (SimulatedJob.MERGE,)),
        JobActor(world, "merger-3", (SimulatedJob.MERGE,)),
        JobActor(world, "builder-1", (SimulatedJob.SNAPSHOT, SimulatedJob.CATCH_UP)),
        JobActor(world, "builder-2", (SimulatedJob.CATCH_UP, SimulatedJob.COMPACT)),
        JobActor(world, "flusher", (SimulatedJob.FLUSH,)),
        JobActor(world, "collector", (SimulatedJob.GC,)),
        BaseWriterActor(world, "base-writer-1", BASE_KEYS[::2]),
        BaseWriterActor(world, "base-writer-2", BASE_KEYS[1::2]),
        PersonActor(world, "person-1"),
        PersonActor(world, "person-2"),
        ReaderActor(world, "reader"),
        TimeActor(world, "time"),
    ]


def strangers(world: World) -> list[Actor]:
    """Return a few of everybody, and two or three of those who come from outside, drawn by the seed."""
    drawn = seeded_rng(world.seed)
    outside: list[Actor] = [each(world, each.__name__) for each in STRANGERS if drawn.random() < _DRAWN]
    if drawn.random() < _DRAWN:
        outside.append(BaseWriterActor(world, "base-writer", BASE_KEYS))
    if drawn.random() < _DRAWN:
        outside.append(PersonActor(world, "person"))
    if drawn.random() < _DRAWN:
        outside.append(RestorerActor(world, "restorer"))
    if drawn.random() < _DRAWN:
        outside.append(SearcherActor(world, "searcher"))
    if drawn.random() < _DRAWN:
        outside.append(OverwriterActor(world, "overwriter"))
    return [
        WriterActor(world, "writer-a", (0,)),
        WriterActor(world, "writer-b", (1,)),
        JobActor(world, "operator", ROUTINE),
        JobActor(world, "merger", (SimulatedJob.MERGE,)),
        JobActor(world, "caretaker", (SimulatedJob.FLUSH, SimulatedJob.REPAIR, SimulatedJob.GC)),
        ReaderActor(world, "reader"),
        TimeActor(world, "time"),
        *outside * 2,
    ]


def divided(world: World) -> list[Actor]:
    """Return writers by two region specs, and those who make way for them: flushes, merges, and time."""
    spec = bucket_spec(_NEW_SPEC, "id", world.plain.state().field_ids, world.buckets + 1)
    world.plain.update_details(lambda details: with_region_spec(details, spec))
    world.is_divided = True
    return [
        TableWriterActor(world, "table-writer-1"),
        TableWriterActor(world, "table-writer-2"),
        TableWriterActor(world, "divider-1", _NEW_SPEC),
        TableWriterActor(world, "divider-2", _NEW_SPEC),
        MergeActor(world, "merger"),
        JobActor(world, "operator", ROUTINE),
        *[JobActor(world, f"caretaker-{number}", (SimulatedJob.FLUSH, SimulatedJob.MERGE)) for number in range(3)],
        ReaderActor(world, "reader"),
        TimeActor(world, "time"),
        TimeActor(world, "more time"),
    ]


@dataclass(frozen=True)
class Scene:
    """A kind of simulation; a seed decides the rest.

    Attributes:
        name: For the output.
        actors: Makes the actors.
        turns: Turns of the outermost level.
        chances: Returns how probable trouble is in a seed.
    """

    name: str
    actors: Callable[[World], list[Actor]]
    turns: int
    chances: Callable[[int], Chances]

    def play(self, seed: int, directory: Path, schedule: Schedule | None = None) -> SimulationResult:
        """Run a seed in an empty directory, or some of its turns; errors as for ``simulate``."""
        turns = schedule if schedule is not None else self.turns
        return simulate(seed, directory, schedule=turns, chances=self.chances(seed), actors=self.actors)


EVERYBODY = Scene("everybody", everybody, 60, lambda seed: Chances() if seed % _ROUGH_EVERY else ROUGH)
"""All writers and jobs at work; every third seed has far more faults than usual."""
RIVALS = Scene("rivals", rivals, 40, lambda _: AIMED)
"""Several of everybody, who interrupt each other between a read and the conditional write that follows."""
OUTSIDE = Scene("strangers", strangers, 40, lambda _: Chances())
"""Other clients' writers, plain writers of the base table, people, copies, restores, a slow store, a wrong clock."""
DIVIDED = Scene("divided", divided, 60, lambda _: Chances())
"""Writers by two region specs, which have the same keys in turn."""
SCENES = (EVERYBODY, RIVALS, OUTSIDE, DIVIDED)
