"""Everybody who rewrites the MemWAL index, at once: mergers, snapshot builders and catch-ups."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pytest
from lance.bitmap import Bitmap
from lance.dataset import Index

from memwal_core.failpoints import Failpoint
from memwal_core.format.memwal_index import MEM_WAL_DETAILS_TYPE_URL, MEM_WAL_INDEX_NAME
from memwal_core.format.memwal_index.codec import encode_details
from testkit.simulation import Chances, SimulationFailedError, SimulationResult, World, simulate
from testkit.simulation.actors.jobs import JobActor, MergeActor, SimulatedJob
from testkit.simulation.actors.writers import WriterActor
from testkit.simulation.world import Actor

TURNS = 200
RUNS = [
    (0, 40),
    pytest.param(0, TURNS, marks=pytest.mark.slow),
    *(pytest.param(seed, TURNS, marks=pytest.mark.long) for seed in range(1, 5)),
]
STALE_SEEDS = (2005, *(seed for seed in range(2000, 2020) if seed != 2005))
"""The shortest run that fails, and others once the code has moved on."""

CROWDED = Chances(interleave=0.15, fail=0.004, crash=0.002)


def index_writers(world: World) -> list[Actor]:
    return [
        WriterActor(world, "writer-a", (0,)),
        WriterActor(world, "writer-b", (1,)),
        MergeActor(world, "merger-1"),
        JobActor(world, "merger-2", (SimulatedJob.MERGE,)),
        JobActor(world, "builder-1", (SimulatedJob.SNAPSHOT,)),
        JobActor(world, "builder-2", (SimulatedJob.SNAPSHOT, SimulatedJob.CATCH_UP)),
    ]


def run(seed: int, directory: Path, actors: Callable[[World], list[Actor]], turns: int = TURNS) -> SimulationResult:
    return simulate(seed, directory, schedule=turns, chances=CROWDED, actors=actors, full_check_turns=turns)


def interrupted(trace: tuple[str, ...]) -> Counter[str]:
    """Return how often a merge began inside of which job's turn."""
    inside: Counter[str] = Counter()
    outer = ""
    for line in trace:
        if not line.startswith(" "):
            outer = line.partition(":")[0]
        elif line.startswith("  merger") and line.endswith("begins"):
            inside[outer] += 1
    return inside


@pytest.mark.req("IDX-27", "IDX-28", "IDX-29", "BLD-15", "CAT-07", "CAT-08")
@pytest.mark.parametrize(("seed", "turns"), RUNS)
def test_progress_survives_every_builder_that_a_merge_overtakes(seed: int, turns: int, tmp_path: Path) -> None:
    """Bug classes 3 and 20: the checks of every turn look at progress in every version."""
    result = run(1000 + seed, tmp_path, index_writers, turns)

    overtaken = interrupted(result.trace)
    assert overtaken["builder-1"] + overtaken["builder-2"] > 0


class StaleBuilder(Actor):
    """A builder that commits what it read with Lance's plain commit, whatever happened meanwhile."""

    def turn(self) -> str:
        world = self._world
        state = world.table.state()
        assert state.entry is not None
        world.failpoints.hit(Failpoint("stale builder has read"))
        details = replace(state.require_details(), snapshot_ts_millis=world.clock.now().microsecond)

        def index(index_id: uuid.UUID, payload: bytes) -> Index:
            described = (MEM_WAL_DETAILS_TYPE_URL, payload)
            return Index(str(index_id), MEM_WAL_INDEX_NAME, [], state.version, Bitmap(), 0, index_details=described)

        new = index(uuid.UUID(int=world.rng.getrandbits(128)), encode_details(details))
        operation = lance.LanceOperation.CreateIndex([new], [index(state.entry.index_id, state.entry.payload)])
        lance.LanceDataset.commit(world.table.uri, operation, read_version=state.version, max_retries=0)
        return "overwrote the MemWAL index"


@pytest.mark.req("IDX-28", "BLD-15")
def test_without_the_strict_commit_of_builders_progress_goes_back(tmp_path: Path) -> None:
    """Negative control: the same crowd with one builder that commits from a stale read."""
    found = []
    for seed in STALE_SEEDS:
        scratch = tmp_path / str(seed)
        scratch.mkdir()
        try:
            run(seed, scratch, lambda world: [*index_writers(world), StaleBuilder(world, "stale-builder")])
        except SimulationFailedError as error:
            found.append(str(error))
            break
    assert len(found) == 1
    assert "merge progress of" in found[0]
