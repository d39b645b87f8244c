"""Judging signals: the worst reading counts, thresholds include their value, damage pages at once."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from memwal_core.observe.findings import Level, Severity
from memwal_core.observe.signals import SIGNALS, Reading, Signal, judge_signals
from memwal_core.settings.status import StatusSettings

SETTINGS = StatusSettings(pending_generations_warn=8, pending_generations_page=20)


def level_of(signal: Signal, *values: float) -> Level:
    judged = judge_signals([Reading(signal, value) for value in values], SETTINGS)
    return next(each.level for each in judged if each.signal is signal)


@pytest.mark.parametrize(
    ("value", "level"), [(0, Level.OK), (7, Level.OK), (8, Level.WARN), (19, Level.WARN), (20, Level.PAGE)]
)
def test_threshold_is_reached_at_its_value(value: float, level: Level) -> None:
    assert level_of(Signal.PENDING_GENERATIONS, value) is level


def test_worst_region_counts_and_is_named() -> None:
    readings = [
        Reading(Signal.PENDING_GENERATIONS, value, subject) for subject, value in (("a", 3), ("b", 30), ("c", 9))
    ]

    worst = judge_signals(readings, SETTINGS)[0]

    assert worst.level is Level.PAGE
    assert (worst.signal, worst.subject) == (Signal.PENDING_GENERATIONS, "b")
    assert worst.to_dict()["runbook"] == "docs/runbooks/pending-generations.md"


@pytest.mark.parametrize(
    "signal",
    [
        Signal.GENERATION_HOLE,
        Signal.PROGRESS_LOST,
        Signal.CORRUPT_MANIFEST,
        Signal.CHECK_FAILED,
        Signal.DUPLICATE_KEYS,
    ],
)
def test_damage_pages_at_once_whatever_the_settings(signal: Signal) -> None:
    assert level_of(signal, 0) is Level.OK
    assert level_of(signal, 1) is Level.PAGE


def test_large_value_is_told_without_an_exponent() -> None:
    judged = judge_signals([Reading(Signal.OLDEST_UNMERGED, 1_296_000.4)], SETTINGS)

    [finding] = [each.finding() for each in judged if each.signal is Signal.OLDEST_UNMERGED]
    assert finding is not None
    assert finding.summary.startswith("1296000 s")


def test_signal_without_a_reading_is_unknown_and_shown() -> None:
    judged = judge_signals([], SETTINGS)

    assert {each.signal for each in judged} == set(SIGNALS) == set(Signal)
    assert {(each.value, each.level, each.finding()) for each in judged} == {(None, Level.UNKNOWN, None)}


@pytest.mark.parametrize(
    ("measured", "level"), [(0, Level.UNKNOWN), (7, Level.UNKNOWN), (8, Level.WARN), (30, Level.PAGE)]
)
def test_signal_that_was_measured_in_part_is_unknown_unless_that_part_is_bad(measured: int, level: Level) -> None:
    """A history that could not be read counted as one without failures."""
    readings = [Reading(Signal.PENDING_GENERATIONS, measured, "a"), Reading(Signal.PENDING_GENERATIONS, None, "b")]

    judged = next(each for each in judge_signals(readings, SETTINGS) if each.signal is Signal.PENDING_GENERATIONS)

    assert judged.level is level
    assert judged.subject == ("b" if level is Level.UNKNOWN else "a")
    finding = judged.finding()
    assert finding is not None
    assert finding.severity is (Severity.CRITICAL if level is Level.PAGE else Severity.WARNING)


def test_exit_codes_tell_warning_and_page_from_the_errors_of_commands() -> None:
    assert [level.exit_code for level in (Level.OK, Level.WARN, Level.PAGE)] == [0, 6, 7]
    assert [level.severity for level in (Level.OK, Level.WARN, Level.PAGE)] == [0, 1, 2]


def test_warning_after_the_page_is_refused() -> None:
    with pytest.raises(ValidationError, match="index_lag"):
        StatusSettings(index_lag_warn=50, index_lag_page=40)


def test_every_measured_signal_has_thresholds() -> None:
    judged = judge_signals([], StatusSettings())

    assert all(0 < each.warn <= each.page for each in judged)
