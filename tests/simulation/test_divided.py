"""A table that was divided anew, and writers by both of its region specs: no row of a key waits in two regions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from memwal_core.writer.other_specs import OtherSpecs
from testkit.simulation import SimulationFailedError, Symptom
from testkit.simulation.scenes import DIVIDED

QUICK_SEED = 2
CONTROL_SEED = 1
LONG_SEEDS = range(40)
MUST_HAPPEN = (
    "table write by spec 1",
    "table write by spec 2",
    "refused for another spec",
    "takeover refused",
    "table writer fenced",
)


@pytest.mark.req("SPEC-30", "SPEC-36")
def test_writers_by_two_specs_lose_no_row(tmp_path: Path) -> None:
    seen = DIVIDED.play(QUICK_SEED, tmp_path).seen

    assert [name for name in MUST_HAPPEN[:3] if not seen[name]] == []


@pytest.mark.long
@pytest.mark.req("SPEC-30", "SPEC-36")
def test_forty_seeds_of_writers_by_two_specs_lose_no_row(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in LONG_SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        seen.update(DIVIDED.play(seed, directory).seen)

    assert [name for name in MUST_HAPPEN if not seen[name]] == []


def test_without_a_look_at_other_specs_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherSpecs, "require_rest", lambda *_: None)

    with pytest.raises(SimulationFailedError) as lost:
        DIVIDED.play(CONTROL_SEED, tmp_path)

    assert lost.value.symptom is Symptom.WRONG_ROWS
