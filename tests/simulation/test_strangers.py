"""Strangers beside those who belong to the table: other clients, copies, restores, searches, people, slow stores."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memwal_core.reader import Consistency
from testkit.simulation import SimulationFailedError, Symptom
from testkit.simulation.actors import searchers, strangers
from testkit.simulation.scenes import OUTSIDE

QUICK_SEED = 1
LONG_SEEDS = range(40)
MUST_HAPPEN = (
    "native put",
    "native delete",
    "backup done",
    "clone done",
    "copy merged: done",
    "slow store",
    "old hints",
    "clock jumped back",
    "clock jumped forward",
    "base table: append",
    "base table: update",
    "base table: delete",
    "person froze the table",
    "person thawed the table",
    "version restored",
    "thawed after a restore",
    "table overwritten",
    "enabled again",
    "thawed after an overwrite",
    "index of vector",
    "index of name",
    "searched by vector",
    "searched by name",
)
SHOWN = {"the copy": (strangers, "COPY_SHOWS", 10), "searcher by": (searchers, "SEARCHED", 0)}
"""Who compares -> the constant that says what is read, and the seed that notices soonest; others are tried once the
code has moved on."""
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
@pytest.mark.req("MRG-14", "WRT-01", "RD-06")
def test_forty_seeds_meet_every_stranger_and_lose_no_row(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in LONG_SEEDS:
        seen.update(OUTSIDE.play(seed, _scratch(tmp_path, seed)).seen)

    assert [name for name in MUST_HAPPEN if not seen[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize("who", SHOWN)
def test_what_is_read_without_unflushed_rows_is_noticed(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the comparisons of copies and of searches with the model bite."""
    module, constant, first = SHOWN[who]
    monkeypatch.setattr(module, constant, Consistency.LATEST)

    every = (_failure(tmp_path, seed) for seed in (first, *(other for other in range(MAX_SEEDS) if other != first)))

    found = next(each for each in every if each is not None)

    assert found.symptom is Symptom.WRONG_ROWS
    assert who in str(found)
