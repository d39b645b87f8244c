"""Rivals that meet at every compare-and-swap, and what happens where it is only a write."""

from __future__ import annotations

import io
import multiprocessing
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from memwal_core.base_table.commit.version_catalog import VersionCatalog
from memwal_core.errors import MemwalError
from memwal_core.register import VersionedRegister
from memwal_core.rng import system_rng
from testkit.simulation import SimulationFailedError, Symptom, World, simulate
from testkit.simulation.contests import WriteKind, in_every_hundred
from testkit.simulation.many import play_seeds
from testkit.simulation.scenes import AIMED, RIVALS, rivals
from testkit.simulation.world import Actor

QUICK_SEEDS = (100, 102)
SLOW_SEEDS = range(100, 110)
LOST_IN_A_HUNDRED = {
    WriteKind.WAL_ENTRY: 250,
    WriteKind.REGION_MANIFEST: 100,
    WriteKind.LEASE: 50,
    WriteKind.LEDGER: 40,
    WriteKind.FREEZE: 70,
    WriteKind.HINT: 40,
    WriteKind.BASE_VERSION: 150,
    WriteKind.MEM_WAL_INDEX: 100,
}
"""Conditional writes that a hundred seeds lose to a rival at the least: about half of what they usually lose."""
FRESH_SEEDS = 100
MAX_SEEDS = 60


@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "LEASE-13")
@pytest.mark.parametrize("seed", QUICK_SEEDS)
def test_rivals_at_every_conditional_write_lose_no_row_and_no_freeze(seed: int, tmp_path: Path) -> None:
    seen = RIVALS.play(seed, tmp_path).seen

    assert seen[WriteKind.BASE_VERSION.lost] > 0
    assert seen[WriteKind.REGION_MANIFEST.lost] > 0


@pytest.mark.slow
def test_ten_seeds_lose_every_kind_of_conditional_write_to_a_rival(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in SLOW_SEEDS:
        scratch = tmp_path / str(seed)
        scratch.mkdir()
        seen.update(RIVALS.play(seed, scratch).seen)

    assert [kind for kind in WriteKind if not seen[kind.lost]] == []
    assert [kind for kind in WriteKind if not seen[kind.won]] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "LEASE-13")
def test_a_hundred_fresh_seeds_lose_stated_numbers_of_conditional_writes_and_no_row() -> None:
    first, output = system_rng().randrange(10**9), io.StringIO()

    failed, contests = play_seeds(
        range(first, first + FRESH_SEEDS), (RIVALS.name,), multiprocessing.cpu_count(), Console(file=output)
    )

    assert failed == [], output.getvalue()
    lost = in_every_hundred(contests, FRESH_SEEDS)
    too_few = {kind: lost[kind] for kind, least in LOST_IN_A_HUNDRED.items() if lost[kind] < least}
    assert too_few == {}, f"seeds from {first}: {lost}"


def _without_guards(world: World) -> list[Actor]:
    world.guards = (MemwalError,)
    return rivals(world)


def _symptom(directory: Path, seed: int) -> Symptom | None:
    """Return what some seed fails of: ``seed``, the shortest run that does, or another once the code has moved on."""
    for tried in (seed, *(other for other in range(MAX_SEEDS) if other != seed)):
        scratch = directory / str(tried)
        scratch.mkdir()
        try:
            simulate(tried, scratch, turns=RIVALS.turns, chances=AIMED, actors=_without_guards)
        except SimulationFailedError as error:
            return error.symptom
    return None


@pytest.mark.req("LEASE-14", "MAN-10")
def test_with_a_register_that_overwrites_an_acknowledged_freeze_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(self: VersionedRegister, version: int, data: bytes, *, with_hint: bool = True) -> None:
        self._store.put(self.path(version), data)
        self._write_hint(version)

    monkeypatch.setattr(VersionedRegister, "create", overwrite)
    assert _symptom(tmp_path, 10) is Symptom.FORGOTTEN


@pytest.mark.req("IDX-28", "BLD-15")
def test_with_a_version_catalog_that_overwrites_rows_of_another_program_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite(self: VersionCatalog, final_path: str, data: bytes) -> None:
        self._store.put(final_path, data)

    monkeypatch.setattr(VersionCatalog, "_publish", overwrite)
    assert _symptom(tmp_path, 7) is Symptom.WRONG_ROWS
