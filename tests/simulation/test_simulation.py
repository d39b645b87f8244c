"""Everybody at once, from seeds that CI and anyone else can replay."""

import os
from pathlib import Path

import pytest

from memwal_core.testing.simulation import Chances, simulate

ROUGH = Chances(interleave=0.1, fail=0.03, crash=0.02)
DEFAULT_SEEDS = range(20)


def _seeds() -> list[int]:
    chosen = os.environ.get("MEMWAL_SIM_SEEDS", "")
    return [int(seed) for seed in chosen.split(",") if seed] or list(DEFAULT_SEEDS)


@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "GC-29", "RD-06")
@pytest.mark.parametrize("seed", _seeds())
def test_no_acknowledged_row_is_lost_resurrected_or_doubled(seed: int, tmp_path: Path) -> None:
    result = simulate(seed, tmp_path, chances=ROUGH if seed % 3 == 0 else Chances())
    assert len(result.trace) >= 60
