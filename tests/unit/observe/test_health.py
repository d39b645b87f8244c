"""One judge: the level, the colour and the score of a table never contradict its findings."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.ids import IdSource
from memwal_core.observe.doctor import Examination
from memwal_core.observe.findings import Finding, Level, Severity
from memwal_core.observe.health import Health
from memwal_core.observe.signals import SIGNALS, Reading, Signal
from memwal_core.settings.status import StatusSettings

SEEN = Examination("t", datetime(2026, 1, 1, tzinfo=UTC), None, None, (), (), (), (), {})
THRESHOLDS = StatusSettings(pending_generations_warn=8, pending_generations_page=20)


def health(*readings: Reading, damage: tuple[Finding, ...] = ()) -> Health:
    return Health("t", damage, readings, THRESHOLDS, SEEN)


def finding(severity: Severity) -> Finding:
    return Finding("wal-hole", severity, "a", {}, "b", "c")


readings = st.builds(Reading, st.sampled_from(Signal), st.floats(0, 1e6))
findings = st.builds(finding, st.sampled_from(Severity))


@settings(derandomize=True, deadline=None)
@given(st.lists(readings, max_size=6), st.lists(findings, max_size=2))
def test_score_and_colour_never_contradict_the_level(measured: list[Reading], damage: list[Finding]) -> None:
    judged = health(*measured, damage=tuple(damage))

    lowest, highest, colour = {
        Level.OK: (80, 100, "good"),
        Level.WARN: (50, 79, "fair"),
        Level.PAGE: (0, 49, "bad"),
    }[judged.level]
    worst_signal = max((each.level.severity for each in judged.signals), default=0)
    assert lowest <= judged.score <= highest
    assert judged.colour == colour
    assert judged.level.severity >= max([worst_signal, *(each.severity.level.severity for each in damage)])


@pytest.mark.parametrize(("value", "score"), [(0, 100), (4, 90), (8, 79), (14, 64), (20, 49), (40, 24), (1000, 0)])
def test_more_is_never_better(value: float, score: int) -> None:
    assert health(Reading(Signal.PENDING_GENERATIONS, value)).score == score


def test_table_of_which_nothing_is_measured_is_not_called_measured() -> None:
    assert set(health().unknown) == set(Signal)
    assert {each["level"] for each in health().to_dict()["signals"]} == {"unknown"}  # type: ignore[attr-defined]


def test_signal_becomes_one_finding_with_its_values_and_its_runbook() -> None:
    region_id = IdSource().region_id()
    late = Reading(Signal.PENDING_GENERATIONS, 30, f"region {region_id}", region_id)
    judged = health(late, replace(late, value=9))

    (found,) = judged.findings
    assert (found.finding_id, found.severity, found.region_id) == ("pending-generations", Severity.CRITICAL, region_id)
    assert dict(found.evidence) == {"subject": f"region {region_id}", "value": 30, "warn": 8.0, "page": 20.0}
    assert found.runbook == "docs/runbooks/pending-generations.md"


def test_region_is_judged_by_what_was_found_on_it() -> None:
    ids = IdSource()
    late, calm = ids.region_id(), ids.region_id()
    damaged = replace(finding(Severity.CRITICAL), region_id=late)
    judged = health(
        Reading(Signal.PENDING_GENERATIONS, 9, region_id=late),
        Reading(Signal.PENDING_GENERATIONS, 1, region_id=calm),
        damage=(damaged,),
    )

    assert (judged.of_region(late).level, judged.of_region(calm).level) == (Level.PAGE, Level.OK)
    assert judged.of_region(calm).score > judged.of_region(late).score == judged.score == 0


def test_signal_that_counts_findings_leaves_the_saying_to_them_and_speaks_where_there_are_none() -> None:
    counted = {signal: facts.findings for signal, facts in SIGNALS.items() if facts.findings}

    assert set(counted) == {Signal.GENERATION_HOLE, Signal.PROGRESS_LOST, Signal.CORRUPT_MANIFEST}
    for signal, names in counted.items():
        said = replace(finding(Severity.CRITICAL), finding_id=min(names))
        assert health(Reading(signal, 1), damage=(said,)).findings == (said,)
        [told] = health(Reading(signal, 1)).findings
        assert told.severity is Severity.CRITICAL
