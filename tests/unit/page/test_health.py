"""The health score: what costs what, and what makes it zero."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.page.health import HealthInput, judge_health
from memwal_core.settings import MergeTriggerSettings

TRIGGERS = MergeTriggerSettings()
WORST = HealthInput(10_000, 1 << 50, 1e9, 1000, 100_000, 100, 1e9)


def test_table_with_nothing_late_is_perfect() -> None:
    health = judge_health(HealthInput(), TRIGGERS)

    assert (health.score, health.level, health.danger) == (100, "good", "")
    assert sum(part.weight for part in health.parts) == 100


def test_lag_below_its_threshold_costs_nothing() -> None:
    assert judge_health(HealthInput(waiting_generations=TRIGGERS.generations), TRIGGERS).score == 100


@pytest.mark.parametrize(
    "facts",
    [
        HealthInput(waiting_generations=4 * TRIGGERS.generations),
        HealthInput(waiting_bytes=4 * TRIGGERS.max_waiting_bytes),
        HealthInput(waiting_age_s=4 * TRIGGERS.max_age_s),
    ],
)
def test_any_merge_lag_of_four_thresholds_costs_the_whole_weight(facts: HealthInput) -> None:
    health = judge_health(facts, TRIGGERS)

    assert health.score == 65
    assert health.parts[0].lost == health.parts[0].weight


def test_summary_names_what_costs_something_the_most_first() -> None:
    health = judge_health(HealthInput(index_lag=1, wal_lag=64), TRIGGERS)

    assert health.summary == "WAL lag -10, index lag -4"
    assert judge_health(HealthInput(), TRIGGERS).summary == ""


def test_danger_makes_the_score_zero_however_good_the_parts_are() -> None:
    health = judge_health(HealthInput(danger="generation 3 is missing"), TRIGGERS)

    assert (health.score, health.level) == (0, "bad")
    assert all(part.lost == 0 for part in health.parts)


def test_everything_late_is_zero() -> None:
    assert judge_health(WORST, TRIGGERS).score == 0


@settings(derandomize=True, deadline=None)
@given(
    st.builds(
        HealthInput,
        st.integers(0, 1000),
        st.integers(0, 1 << 40),
        st.floats(0, 1e7),
        st.integers(0, 50),
        st.integers(0, 1000),
        st.integers(0, 10),
        st.floats(0, 1e6),
    )
)
def test_score_is_a_hundred_less_its_parts(facts: HealthInput) -> None:
    health = judge_health(facts, TRIGGERS)

    assert health.score == 100 - sum(part.lost for part in health.parts)
    assert all(0 <= part.lost <= part.weight for part in health.parts)


def test_weights_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "health-score.md").read_text()
    documented = {
        name: int(weight) for name, weight in re.findall(r"^\| ([A-Za-z ]+?) \| (\d+) \|", text, re.MULTILINE)
    }

    assert documented == {part.name: part.weight for part in judge_health(HealthInput(), TRIGGERS).parts}
