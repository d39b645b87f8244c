"""Writers of other clients, copies, people, a slow store and a wrong clock, besides those who belong to the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memwal_core.reader import Consistency
from testkit.simulation import SimulationFailedError, Symptom
from testkit.simulation.actors import strangers
from testkit.simulation.scenes import OUTSIDE

QUICK_SEED = 1
LONG_SEEDS = range(40)
MUST_HAPPEN = (
    "native put",
    "native delete",
    "copy done",
    "slow store",
    "clock jumped back",
    "clock jumped forward",
    "base table: append",
    "base table: update",
    "base table: delete",
    "person froze the table",
    "person thawed the table",
)
FOUND_BY = 15
"""The seed that notices soonest; others are tried once the code has moved on."""
MAX_SEEDS = 20


def _scratch(directory: Path, seed: int) -> Path:
    made = directory / str(seed)
    made.mkdir()
    return made


def _failure(directory: Path, seed: int) -> SimulationFailedError | None:
    try:
        OUTSIDE.play(seed, _scratch(directory, seed))
    except SimulationFailedError as error:
        return error
    return None


@pytest.mark.req("MRG-14", "WRT-01", "RD-06")
def test_strangers_at_a_table_lose_no_row(tmp_path: Path) -> None:
    seen = OUTSIDE.play(QUICK_SEED, tmp_path).seen

    assert [name for name in MUST_HAPPEN if seen[name]] != []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.req("MRG-14", "WRT-01", "RD-06")
def test_forty_seeds_meet_every_stranger_and_lose_no_row(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in LONG_SEEDS:
        seen.update(OUTSIDE.play(seed, _scratch(tmp_path, seed)).seen)

    assert [name for name in MUST_HAPPEN if not seen[name]] == []


@pytest.mark.slow
def test_copy_that_is_read_without_its_unflushed_rows_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the comparison of copies with the model bites."""
    monkeypatch.setattr(strangers, "COPY_SHOWS", Consistency.LATEST)

    every = (
        _failure(tmp_path, seed) for seed in (FOUND_BY, *(other for other in range(MAX_SEEDS) if other != FOUND_BY))
    )

    found = next(each for each in every if each is not None)

    assert found.symptom is Symptom.WRONG_ROWS
    assert "the copy" in str(found)
