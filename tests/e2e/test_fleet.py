"""A fleet for some minutes: written, maintained, watched, read, and its processes killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.fleet.hour import Hour
from testkit.fleet.servers import SETTINGS
from testkit.rng import seeded_rng

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.long,
    # The servers outlive the objects that started them, and are stopped by their numbers.
    pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning"),
]

SOUND, BROKEN = 6, 7


def test_sound_tables_stay_exact_and_unnoticed_and_each_broken_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)

    outcome = Hour(tmp_path, SOUND, seeded_rng(2)).play(minutes=5)

    assert outcome.problems == [], "\n".join(outcome.lines())
    assert len(outcome.tables) == SOUND + BROKEN
    assert all(outcome.batches[table.name] for table in outcome.tables if table.is_sound)
    assert outcome.reads.total() >= SOUND
    assert outcome.killed.total() >= 2
