"""Recording runs in a store and reading them back."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import (
    RUNS_SCHEMA,
    Ledger,
    RunEnd,
    RunOutcome,
    RunRecord,
)
from memwal_core.errors import ConflictError, CorruptionError, FencedError, UnavailableError
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore
from memwal_core.settings import LedgerSettings
from memwal_core.storage import open_store
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore

MERGE = JobKey("merge")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store():
    return FaultyStore(open_store("memory://t"))


@pytest.fixture
def ledger(store, clock):
    return Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock)


def record(ledger, clock, number, outcome=RunOutcome.DONE, key=MERGE):
    run = RunRecord(key, f"run-{number}", "airflow", clock.now())
    ledger.begin(run)
    clock.advance(5)
    ledger.end(run, RunEnd(clock.now(), outcome, {"rows": number}))
    return run


def _calls(store, ask):
    store.calls.clear()
    ask()
    return list(store.calls)


def test_run_is_recorded_with_its_outcome_facts_and_verdict(ledger, clock):
    with ledger.run(RunRecord(MERGE, "run-1", "airflow", clock.now(), fencing_token=7)) as progress:
        assert ledger.history(MERGE).runs[0].outcome is RunOutcome.RUNNING
        clock.advance(3)
        progress.outcome = RunOutcome.NOTHING_TO_DO
        progress.facts["rows"] = 0
        progress.verdict = "nothing waits"
    (run,) = ledger.history(MERGE).runs
    assert (run.outcome, run.facts, run.verdict, run.fencing_token) == (
        RunOutcome.NOTHING_TO_DO,
        {"rows": 0},
        "nothing waits",
        7,
    )
    assert (run.ended - run.started).total_seconds() == 3


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (FencedError("lost", remedy="stop"), RunOutcome.FENCED),
        (ConflictError("raced", remedy="retry"), RunOutcome.CONFLICT),
        (CorruptionError("broken", remedy="stop"), RunOutcome.BLOCKED),
        (UnavailableError("silent", remedy="retry"), RunOutcome.FAILED),
        (ZeroDivisionError("oops"), RunOutcome.FAILED),
    ],
)
def test_error_is_recorded_with_its_class_and_goes_on(ledger, clock, error, outcome):
    with pytest.raises(type(error)), ledger.run(RunRecord(MERGE, "run-1", "airflow", clock.now())):
        raise error
    (run,) = ledger.history(MERGE).runs
    assert (run.outcome, run.error) == (outcome, type(error).__name__)
    assert run.verdict in str(error)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interrupted_runs_have_an_end_and_pause_nothing(ledger, clock, interruption):
    """Ctrl-C counted as a death: the next run searched all files for one that ends processes, the fourth was paused."""
    for number in range(4):
        with pytest.raises(interruption), ledger.run(RunRecord(MERGE, f"run-{number}", "me", clock.now())):
            raise interruption
    history = ledger.history(MERGE)
    assert {(run.outcome, run.error) for run in history.runs} == {(RunOutcome.INTERRUPTED, interruption.__name__)}
    assert history.died_before is None
    assert ledger.judge(history).allowed


def test_what_is_done_beside_the_end_is_done_before_it_on_a_near_store(ledger, clock):
    seen = []
    with ledger.run(RunRecord(MERGE, "run-1", "airflow", clock.now())) as progress:
        progress.beside_end = lambda: seen.append(ledger.history(MERGE).runs[0].has_ended)
    assert seen == [False]
    assert ledger.history(MERGE).runs[0].outcome is RunOutcome.DONE


def test_failed_run_does_nothing_beside_its_end(ledger, clock):
    seen = []

    def fail():
        with ledger.run(RunRecord(MERGE, "run-1", "airflow", clock.now())) as progress:
            progress.beside_end = lambda: seen.append(1)
            raise ConflictError("raced", remedy="retry")

    with pytest.raises(ConflictError):
        fail()
    assert seen == []


def test_ledger_that_cannot_be_written_does_not_stop_the_job(store, ledger, clock, caplog):
    store.fail("put_if_absent", times=None)
    worked = []
    with caplog.at_level(logging.WARNING), ledger.run(RunRecord(MERGE, "run-1", "airflow", clock.now())):
        worked.append(1)
    assert worked
    assert caplog.text.count("not recorded") == 2


def test_ledger_lies_beside_the_regions_and_keeps_jobs_and_scopes_apart(store, ledger, clock):
    region_id = IdSource().region_id()
    record(ledger, clock, 1)
    record(ledger, clock, 2, key=JobKey("gc", str(region_id)))
    assert ManifestStore(store, IdSource()).region_ids() == []
    assert ledger.known_keys() == [JobKey("gc", str(region_id)), MERGE]
    assert [run.run_id for run in ledger.runs("merge")] == ["run-1"]


def test_table_of_runs_has_one_typed_row_per_run(store, ledger, clock):
    record(ledger, clock, 1)
    record(ledger, clock, 2, RunOutcome.FAILED)
    ledger.begin(RunRecord(MERGE, "run-3", "airflow", clock.now()))
    table = ledger.table()
    assert table.schema == RUNS_SCHEMA
    assert table.column("outcome").to_pylist() == ["done", "failed", "running"]
    assert table.column("ended").null_count == 1
    assert json.loads(table.column("facts")[1].as_py()) == {"rows": 2}
    assert set(table.column("table").to_pylist()) == {store.uri}
    assert ledger.table("gc").num_rows == 0
    assert pa.types.is_timestamp(table.schema.field("started").type)


def test_reports_of_many_processes_are_all_kept(store, clock):
    barrier = threading.Barrier(6)

    def report(number):
        mine = Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock)
        barrier.wait()
        mine.end(RunRecord(MERGE, f"run-{number}", "airflow", clock.now()), RunEnd(clock.now(), RunOutcome.DONE))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(report, range(6)))
    kept = Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock).history(MERGE)
    assert {run.run_id for run in kept.runs} == {f"run-{number}" for number in range(6)}


def test_end_after_a_lost_reply_is_recorded_once(store, ledger, clock):
    run = RunRecord(MERGE, "run-1", "airflow", clock.now())
    end = RunEnd(clock.now(), RunOutcome.DONE)
    store.lose_reply("put_if_absent", path=lambda path: "version_hint" not in path)
    with pytest.raises(UnavailableError):
        ledger.end(run, end)
    ledger.end(run, end)
    assert len(ledger.history(MERGE).runs) == 1


def test_job_pauses_after_three_failures_and_runs_again_after_the_pause(ledger, clock):
    for number in range(3):
        assert ledger.may_run(MERGE).allowed
        record(ledger, clock, number, RunOutcome.FAILED)
    assert not ledger.may_run(MERGE).allowed
    assert ledger.may_run(JobKey("gc")).allowed
    clock.advance(600)
    assert ledger.may_run(MERGE).allowed


def test_history_that_cannot_be_read_never_stops_a_job(store, ledger, clock, caplog):
    record(ledger, clock, 1)
    newest = max(info.path for info in store.list_objects("_mem_wal/_ledger") if "version_hint" not in info.path)
    store.put(newest, b"rubbish")
    for info in list(store.list_objects("_mem_wal/_ledger")):
        if "version_hint" not in info.path:
            store.put(info.path, b"rubbish")
    with caplog.at_level(logging.WARNING):
        assert ledger.may_run(MERGE).allowed
    assert "ignored" in caplog.text


def test_all_histories_are_read_once_and_a_broken_one_hides_no_other(store, ledger, clock):
    record(ledger, clock, 1)
    record(ledger, clock, 2, key=JobKey("gc"))
    asked = [call for key in (MERGE, JobKey("gc")) for call in _calls(store, lambda key=key: ledger.history(key))]
    listed = _calls(store, ledger.known_keys)
    assert Counter(_calls(store, ledger.histories)) == Counter([*listed, *asked])
    for info in list(store.list_objects("_mem_wal/_ledger/gc")):
        if "version_hint" not in info.path:
            store.put(info.path, b"rubbish")

    found, unreadable = ledger.histories()

    assert [(each.key, len(each.runs)) for each in found] == [(MERGE, 1)]
    assert [(key.job, "_ledger/gc" in str(error)) for key, error in unreadable.items()] == [("gc", True)]
    assert ledger.histories("merge")[1] == {}
    with pytest.raises(CorruptionError):
        ledger.runs()


def test_reading_a_long_history_is_a_bounded_number_of_requests(store, clock):
    ledger = Ledger(store, IdSource(), settings=LedgerSettings(max_runs=10), clock=clock)
    for number in range(30):
        record(ledger, clock, number)
    store.calls.clear()
    found = ledger.history(MERGE)
    assert len(found.runs) == 10
    assert found.forgotten == 20
    assert len(store.calls) <= 4


def test_a_run_is_recorded_with_one_hint_that_names_its_end(store, clock):
    ledger = Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock)
    for number in range(3):
        store.calls.clear()
        record(ledger, clock, number)
        assert store.count("put") == 1
    store.calls.clear()
    assert len(ledger.history(MERGE).runs) == 3
    assert len(store.calls) == 3


def test_hints_keep_up_with_runs_that_die(store, clock):
    for number in range(6):
        ledger = Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock)
        ledger.begin(RunRecord(MERGE, f"run-{number}", "airflow", clock.now()))
    store.calls.clear()
    assert len(Ledger(store, IdSource(), settings=LedgerSettings(), clock=clock).history(MERGE).runs) == 6
    assert len(store.calls) <= 5
