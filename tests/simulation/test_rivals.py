"""Rivals that meet at every compare-and-swap, and what happens where it is only a write."""

from __future__ import annotations

import io
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from memwal_core.errors import MemwalError
from memwal_core.rng import system_rng
from memwal_core.storage.local import LocalStore
from memwal_core.storage.protocol import ObjectPart
from testkit.faults.faulty_store import Call
from testkit.simulation import SimulationFailedError, Symptom, World, simulate
from testkit.simulation.contests import Contests, WriteKind, in_every_hundred, kind_of
from testkit.simulation.many import play_seeds
from testkit.simulation.scenes import AIMED, RIVALS, rivals
from testkit.simulation.world import Actor

QUICK_SEEDS = (106, 111)
SLOW_SEEDS = range(100, 110)
LOST_IN_A_HUNDRED = {
    WriteKind.WAL_ENTRY: 250,
    WriteKind.REGION_MANIFEST: 100,
    WriteKind.LEASE: 50,
    WriteKind.LEDGER: 80,
    WriteKind.FREEZE: 140,
    WriteKind.HINT: 40,
    WriteKind.BASE_VERSION: 150,
    WriteKind.MEM_WAL_INDEX: 100,
}
"""Conditional writes that a hundred seeds lose to a rival at the least: about half of what they usually lose."""
FRESH_SEEDS = 100
MAX_SEEDS = 20
FOUND = {
    WriteKind.WAL_ENTRY: (11, Symptom.WRONG_ROWS),
    WriteKind.REGION_MANIFEST: (5, Symptom.REPLACED),
    WriteKind.LEASE: (0, Symptom.REPLACED),
    WriteKind.LEDGER: (7, Symptom.REPLACED),
    WriteKind.FREEZE: (4, Symptom.FORGOTTEN),
    WriteKind.BASE_VERSION: (9, Symptom.WRONG_ROWS),
    WriteKind.MEM_WAL_INDEX: (9, Symptom.WRONG_ROWS),
}
"""Where one kind of write is made unconditional: the seed that finds it soonest, and what it fails of.

A hint has no condition that could be left out.
"""


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
@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "LEASE-13")
def test_a_hundred_fresh_seeds_lose_stated_numbers_of_conditional_writes_and_no_row() -> None:
    first, output = system_rng().randrange(10**9), io.StringIO()

    played = play_seeds(
        range(first, first + FRESH_SEEDS), (RIVALS.name,), multiprocessing.cpu_count(), Console(file=output)
    )

    assert played.failed == [], output.getvalue()
    lost = in_every_hundred(played.contests, FRESH_SEEDS)
    too_few = {kind: lost[kind] for kind, least in LOST_IN_A_HUNDRED.items() if lost[kind] < least}
    assert too_few == {}, f"seeds from {first}: {lost}"


def _without_guards(world: World) -> list[Actor]:
    world.guards = (MemwalError,)
    return rivals(world)


def _failed_of(directory: Path, seed: int) -> Symptom | None:
    scratch = directory / str(seed)
    scratch.mkdir()
    try:
        simulate(seed, scratch, schedule=RIVALS.turns, chances=AIMED, actors=_without_guards)
    except SimulationFailedError as error:
        return error.symptom
    return None


def _symptom(directory: Path, seeds: Iterable[int]) -> Symptom | None:
    """Return what the first seed that fails fails of; None if all of them pass."""
    return next((each for each in (_failed_of(directory, seed) for seed in seeds) if each is not None), None)


def _is_at(place: WriteKind, store: LocalStore, path: str, data: bytes) -> bool:
    kind = kind_of(Call("put", path))
    if place is WriteKind.MEM_WAL_INDEX:
        return kind is WriteKind.BASE_VERSION and Contests(store, Counter(), str).changes_index(path, data)
    return kind is place


def _write_over(place: WriteKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writes of one kind replace what a rival has written; others stay as they are."""

    def put(self: LocalStore, path: str, data: bytes) -> None:
        (LocalStore.put if _is_at(place, self, path, data) else one)(self, path, data)

    def put_parts(self: LocalStore, path: str, parts: Sequence[ObjectPart]) -> None:
        data = b"".join(parts)
        if _is_at(place, self, path, data):
            self.put(path, data)
        else:
            several(self, path, [data])

    one, several = LocalStore.put_if_absent, LocalStore.put_parts_if_absent
    monkeypatch.setattr(LocalStore, "put_if_absent", put)
    monkeypatch.setattr(LocalStore, "put_parts_if_absent", put_parts)


@pytest.mark.req("LEASE-14", "MAN-10", "WRT-41", "IDX-28", "BLD-15")
@pytest.mark.parametrize(
    ("place", "seed", "symptom"),
    [pytest.param(place, *found, id=place.value) for place, found in FOUND.items()],
)
def test_where_one_kind_of_write_replaces_what_a_rival_wrote_the_loss_is_found(
    place: WriteKind, seed: int, symptom: Symptom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control, of each compare-and-swap by itself."""
    _write_over(place, monkeypatch)
    others = (other for other in range(MAX_SEEDS) if other != seed)
    assert _symptom(tmp_path, (seed, *others)) is symptom
