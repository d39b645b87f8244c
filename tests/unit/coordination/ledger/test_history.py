"""The history of a job only moves forward, stays bounded, and makes failing jobs pause."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import History, RunEnd, RunOutcome, RunRecord, begin_run, end_run, judge
from memwal_core.coordination.ledger.codec import decode_history, encode_history
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.settings import LedgerSettings

MERGE = JobKey("merge")
START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = LedgerSettings()
ENDED = [outcome for outcome in RunOutcome if outcome is not RunOutcome.RUNNING]


def at(minutes):
    return START + timedelta(minutes=minutes)


def run(number, **values):
    return RunRecord(MERGE, f"run-{number}", "airflow", at(number), **values)


def ended(number, outcome, error=""):
    return run(number, ended=at(number), outcome=outcome, error=error)


def history(*outcomes):
    return History(MERGE, tuple(ended(number, outcome) for number, outcome in enumerate(outcomes)))


@pytest.mark.parametrize("first", ENDED)
@pytest.mark.parametrize("second", ENDED)
def test_ended_run_never_changes_again(first, second):
    """A late or repeated report must not bring a finished run back (bug 45)."""
    done = end_run(History(MERGE), run(1), RunEnd(at(2), first, verdict="first"), 10)
    assert end_run(done, run(1), RunEnd(at(3), second, verdict="second"), 10) is None
    assert begin_run(done, run(1), 10) is None


def test_beginning_reported_after_the_end_changes_nothing():
    done = end_run(History(MERGE), run(1), RunEnd(at(2), RunOutcome.DONE), 10)
    assert begin_run(done, run(1), 10) is None


def test_running_is_no_end_and_an_ended_run_no_beginning():
    with pytest.raises(InvalidRequestError):
        end_run(History(MERGE), run(1), RunEnd(at(2), RunOutcome.RUNNING), 10)
    with pytest.raises(InvalidRequestError):
        begin_run(History(MERGE), ended(1, RunOutcome.DONE), 10)
    with pytest.raises(InvalidRequestError):
        begin_run(History(JobKey("gc")), run(1), 10)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from(list(RunOutcome))), max_size=60))
def test_no_order_of_reports_loses_an_end_or_grows_without_bound(reports):
    found, terminal = History(MERGE), {}
    for number, outcome in reports:
        if outcome is RunOutcome.RUNNING:
            changed = begin_run(found, run(number), 10)
        else:
            changed = end_run(found, run(number), RunEnd(at(number), outcome), 10)
        before, found = found, changed if changed is not None else found
        for each in before.runs:
            now = found.find(each.run_id)
            assert not each.has_ended or now is None or now == each
        assert len(found.runs) <= 10
        terminal.update({each.run_id: each.outcome for each in found.runs if each.has_ended})
    assert found.forgotten + len(found.runs) >= len({f"run-{number}" for number, _ in reports} & set(terminal))


def test_what_found_nothing_to_do_is_forgotten_first():
    found = history(RunOutcome.FAILED, *[RunOutcome.NOTHING_TO_DO] * 9)
    found = begin_run(found, run(10), 10)
    assert found.runs[0].run_id == "run-0"
    assert "run-1" not in {each.run_id for each in found.runs}
    assert found.forgotten == 1
    assert len(found.runs) == 10


def test_history_round_trips_through_its_bytes():
    found = History(MERGE, (run(1), replace(ended(2, RunOutcome.FAILED, "UnavailableError"), facts={"rows": 3})), 7)
    assert decode_history(encode_history(found, b"x" * 16), MERGE, "ledger.json") == found


def test_facts_that_json_does_not_know_are_recorded_as_text():
    found = History(MERGE, (replace(ended(1, RunOutcome.DONE), facts={"at": START}),))
    assert decode_history(encode_history(found, b""), MERGE, "l").runs[0].facts == {"at": str(START)}


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"runs": [{}], "forgotten": 0}', b"[1]"])
def test_damaged_history_is_corrupt(damage):
    with pytest.raises(CorruptionError):
        decode_history(damage, MERGE, "ledger.json")


class TestCooldown:
    """A job that keeps failing pauses, longer each time, and never for good (bugs 38 and 39)."""

    def test_new_job_and_job_that_succeeded_may_run(self):
        assert judge(History(MERGE), START, SETTINGS).allowed
        assert judge(history(RunOutcome.FAILED, RunOutcome.DONE), START, SETTINGS).failures == 0

    @pytest.mark.parametrize(
        ("failures", "pause_s"),
        [(1, 0), (2, 0), (3, 600), (4, 1200), (5, 2400), (8, 19_200), (9, 21_600), (500, 21_600)],
    )
    def test_pause_doubles_after_three_failures_up_to_six_hours(self, failures, pause_s):
        found = history(*[RunOutcome.FAILED] * failures)
        last = found.runs[-1].ended
        if pause_s:
            assert not judge(found, last + timedelta(seconds=pause_s - 1), SETTINGS).allowed
        verdict = judge(found, last + timedelta(seconds=pause_s), SETTINGS)
        assert verdict.allowed
        assert verdict.failures == failures
        assert verdict.retry_at == (last + timedelta(seconds=pause_s) if pause_s else None)

    def test_failures_by_a_clock_far_ahead_pause_nobody_and_those_a_little_ahead_do(self):
        """A job paused for as long as the clock of the machine that failed had been ahead: a year, or for ever."""
        found = history(*[RunOutcome.FAILED] * 3)
        last = found.runs[-1].ended
        verdict = judge(found, last - timedelta(days=365), SETTINGS)
        assert verdict.allowed
        assert verdict.failures == 3
        assert not judge(found, last - timedelta(seconds=600), SETTINGS).allowed

    def test_pause_names_the_error_and_its_end(self):
        found = History(MERGE, tuple(ended(n, RunOutcome.FAILED, "CorruptionError") for n in range(3)))
        reason = judge(found, at(2), SETTINGS).reason
        assert "CorruptionError" in reason
        assert "2026-01-01 00:12:00" in reason

    @pytest.mark.parametrize("outcome", [RunOutcome.CONFLICT, RunOutcome.BLOCKED, RunOutcome.FAILED])
    def test_every_kind_of_failure_counts(self, outcome):
        assert len(history(RunOutcome.DONE, outcome, outcome).failures_in_a_row) == 2

    @pytest.mark.parametrize("outcome", [RunOutcome.DONE, RunOutcome.NOTHING_TO_DO])
    def test_success_ends_the_row(self, outcome):
        assert len(history(RunOutcome.FAILED, RunOutcome.FAILED, outcome, RunOutcome.FAILED).failures_in_a_row) == 1

    def test_fenced_run_counts_as_nothing(self):
        assert len(history(RunOutcome.FAILED, RunOutcome.FENCED, RunOutcome.FAILED).failures_in_a_row) == 2

    def test_run_that_died_counts_once_another_began(self):
        """A table whose merge is killed for its memory must pause like one whose merge fails."""
        died = tuple(run(number) for number in range(4))
        assert len(History(MERGE, died).failures_in_a_row) == 3
        verdict = judge(History(MERGE, died), at(3), SETTINGS)
        assert not verdict.allowed
        assert "without a report" in verdict.reason

    def test_run_under_way_is_no_failure(self):
        assert judge(History(MERGE, (run(1),)), at(2), SETTINGS).failures == 0


def test_numbers_that_json_lacks_become_text() -> None:
    """They were written as `Infinity`, which other readers of JSON refuse."""
    found = History(MERGE, (ended(1, RunOutcome.DONE),))
    found = replace(found, runs=(replace(found.runs[0], facts={"a": float("inf"), "b": [float("nan"), 1.5]}),))
    data = encode_history(found, b"")
    assert b"Infinity" not in data
    assert decode_history(data, MERGE, "l").runs[0].facts == {"a": "inf", "b": ["nan", 1.5]}


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"2026-01-01T00:01:00+00:00"', b'"2026-01-01T00:01:00"'), (b'"facts":{}', b'"facts":{"a":Infinity}')],
    ids=["naive time", "infinity"],
)
def test_a_history_with_a_naive_time_or_a_number_of_no_json_is_corrupt(old: bytes, new: bytes) -> None:
    """Such a time failed later, where it was compared with another."""
    data = encode_history(History(MERGE, (ended(1, RunOutcome.DONE),)), b"")
    assert old in data
    with pytest.raises(CorruptionError):
        decode_history(data.replace(old, new), MERGE, "ledger.json")
