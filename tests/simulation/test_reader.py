"""Readers at work during everything that writers and jobs do to a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.simulation import Chances, simulate
from testkit.simulation.actors.readers import ReaderActor
from testkit.simulation.simulate import everybody
from testkit.simulation.world import Actor, World

SEEDS = [101, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (100, *range(102, 108)))]
BUSY = Chances(interleave=0.1, fail=0.01, crash=0.005)


def with_three_readers(world: World) -> list[Actor]:
    return [*everybody(world), ReaderActor(world, "reader-2"), ReaderActor(world, "reader-3")]


@pytest.mark.req("RD-06", "RD-12", "RD-13", "RD-15")
@pytest.mark.parametrize("seed", SEEDS)
def test_reader_never_sees_a_wrong_row_while_everybody_is_at_work(seed: int, tmp_path: Path) -> None:
    result = simulate(seed, tmp_path, chances=BUSY, actors=with_three_readers)

    assert sum(times for name, times in result.seen.items() if name.startswith("read by")) > 0
