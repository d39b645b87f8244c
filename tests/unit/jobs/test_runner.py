"""Running a job: its lease, its ticket or guard, its exit code, and what the ledger remembers, whoever starts it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import remove_versions
from memwal_core.cli.app import app
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.document import JobDocument
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.job import Job
from memwal_core.jobs.memory import MEMORY_LIMIT_FACT, PEAK_MEMORY_FACT
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobInfo, JobRequest
from memwal_core.jobs.runner import execute
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.jobs.view import ReportView
from memwal_core.observe.signals.jobs import Histories, job_readings
from memwal_core.observe.signals.signal import Signal
from memwal_core.settings import LeaseSettings, Settings
from memwal_core.spark.application import main
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.pickling_executors import PicklingExecutors
from testkit.tables.garbage import write_generations
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people

TOY = JobKey("toy")
LEASE = LeaseSettings()


@dataclass(frozen=True)
class ToyReport:
    """What a toy did."""

    table_uri: str
    outcome: JobOutcome
    seconds: float = 0.0

    def why(self) -> str:
        return "it was asked to"

    def facts(self) -> Mapping[str, object]:
        return {"version": 7}

    def to_dict(self) -> dict[str, object]:
        return {"outcome": self.outcome.value}

    def view(self) -> ReportView:
        return ReportView(self.why())


class ToyJob(Job["ToyRequest", ToyReport]):
    """Notes its contexts, and ends as the test says."""

    contexts: ClassVar[list[JobContext]] = []
    ends: ClassVar[Callable[[JobContext], JobOutcome]]

    def check(self, settings: Settings, request: ToyRequest) -> None:
        if request.senseless:
            raise InvalidRequestError("senseless", remedy="ask for something else")

    def run(self, context: JobContext, request: ToyRequest) -> ToyReport:
        ToyJob.contexts.append(context)
        outcome = JobOutcome.PLANNED if request.dry_run else ToyJob.ends(context)
        return ToyReport(context.opened.uri, outcome)


class ToyRequest(JobRequest):
    """Play."""

    info: ClassVar[JobInfo[ToyReport]] = JobInfo(
        name="toy",
        summary="Play.",
        implementation=f"{__name__}:ToyJob",
        runbook="docs/runbooks/job-failures.md",
        guide="",
    )

    senseless: bool = False


class FreeRequest(ToyRequest):
    """Play without a lease."""

    info: ClassVar[JobInfo[ToyReport]] = JobInfo(
        name="toy", summary="", implementation=f"{__name__}:ToyJob", runbook="", guide="", takes_lease=False
    )


class BoldRequest(ToyRequest):
    """Play with a frozen table, too."""

    info: ClassVar[JobInfo[ToyReport]] = JobInfo(
        name="toy", summary="", implementation=f"{__name__}:ToyJob", runbook="", guide="", acts_on_frozen=True
    )


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> list[JobContext]:
    """The contexts of the runs of this test."""
    monkeypatch.setattr(ToyJob, "contexts", [])
    ends_with(monkeypatch, lambda _context: JobOutcome.DONE)
    return ToyJob.contexts


def ends_with(monkeypatch: pytest.MonkeyPatch, end: Callable[[JobContext], JobOutcome]) -> None:
    monkeypatch.setattr(ToyJob, "ends", staticmethod(end), raising=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> OpenTable:
    make_people_table(str(tmp_path / "t"), buckets=1)
    return OpenTable.at(str(tmp_path / "t"), settings=Settings(lease=LEASE), clock=clock)


def holder_now(opened: OpenTable) -> str | None:
    """Return who holds the toy's lease; None if it is free."""
    stored = opened.leases.read(TOY)
    free = stored is None or stored.document.is_free(opened.clock.now(), timedelta(0), timedelta(seconds=LEASE.ttl_s))
    return None if free or stored is None else stored.document.holder


@pytest.mark.req("LEASE-20")
def test_run_holds_its_lease_while_it_works_and_gives_it_back(
    opened: OpenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders: list[str | None] = []

    def look(context: JobContext) -> JobOutcome:
        holders.append(holder_now(opened))
        context.guard()
        return JobOutcome.DONE

    ends_with(monkeypatch, look)
    execute(opened, ToyRequest(), holder="run-1")

    assert holders == ["run-1"]
    assert holder_now(opened) is None
    (run,) = opened.ledger.runs("toy")
    stored = opened.leases.read(TOY)
    assert stored is not None
    assert (run.holder, run.fencing_token) == ("run-1", stored.document.fencing_token)


def test_run_without_a_name_gets_one_that_no_other_run_has(opened: OpenTable, toy: list[JobContext]) -> None:
    execute(opened, ToyRequest())
    execute(opened, ToyRequest())

    first, second = (context.holder for context in toy)
    assert first
    assert second
    assert first != second
    assert [run.holder for run in opened.ledger.runs("toy")] == [first, second]


@pytest.mark.req("LEASE-42")
def test_run_under_a_ticket_uses_that_lease_and_leaves_it_taken(opened: OpenTable, toy: list[JobContext]) -> None:
    lease = opened.leases.acquire(TOY, "a DAG run")

    execute(opened, ToyRequest(), ticket=lease.ticket)

    lease.check()
    assert holder_now(opened) == "a DAG run"
    (run,) = opened.ledger.runs("toy")
    assert (run.holder, run.fencing_token) == ("a DAG run", lease.ticket.fencing_token)
    assert toy[0].holder == "a DAG run"


@pytest.mark.req("LEASE-10", "LEASE-42")
def test_ticket_of_a_lost_lease_starts_nothing_and_is_recorded_as_fenced(
    opened: OpenTable, clock: ManualClock, toy: list[JobContext]
) -> None:
    lost = opened.leases.acquire(TOY, "late").ticket
    clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
    opened.leases.acquire(TOY, "successor")

    with pytest.raises(FencedError):
        execute(opened, ToyRequest(), ticket=lost)

    assert toy == []
    [run] = opened.ledger.runs()
    assert (run.holder, run.outcome) == ("late", RunOutcome.FENCED)


@pytest.mark.req("LEASE-15")
def test_lease_lost_in_the_middle_stops_the_run_at_its_next_check(
    opened: OpenTable, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(context: JobContext) -> JobOutcome:
        clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
        opened.leases.acquire(TOY, "successor")
        context.guard()
        return JobOutcome.DONE

    ends_with(monkeypatch, lose)
    with pytest.raises(FencedError):
        execute(opened, ToyRequest())

    (run,) = opened.ledger.runs("toy")
    assert (run.outcome, run.error) == (RunOutcome.FENCED, "FencedError")
    assert holder_now(opened) == "successor"
    assert opened.ledger.may_run(TOY).failures == 0


def test_guard_stands_in_for_the_lease(opened: OpenTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    held = opened.leases.acquire(TOY, "another")

    def work(context: JobContext) -> JobOutcome:
        context.guard()
        return JobOutcome.DONE

    ends_with(monkeypatch, work)
    execute(opened, ToyRequest(), guard=lambda: asked.append(1))

    assert asked == [1]
    held.check()
    (run,) = opened.ledger.runs("toy")
    assert (run.outcome, run.fencing_token) == (RunOutcome.DONE, 0)


def test_job_that_takes_no_lease_is_recorded_without_one(opened: OpenTable, toy: list[JobContext]) -> None:
    held = opened.leases.acquire(TOY, "another")

    execute(opened, FreeRequest())

    toy[0].guard()
    held.check()
    assert [run.fencing_token for run in opened.ledger.runs("toy")] == [0]


@pytest.mark.req("MRG-26", "LEASE-06")
def test_busy_lease_is_said_and_leaves_no_run(opened: OpenTable, toy: list[JobContext]) -> None:
    held = opened.leases.acquire(TOY, "the night's run")

    with pytest.raises(LeaseHeldError) as refused:
        execute(opened, ToyRequest(), holder="run-2")

    assert refused.value.facts["holder"] == "the night's run"
    assert refused.value.facts["expires_at"] == held.document.expires_at.isoformat()
    assert toy == []
    assert opened.ledger.runs() == []


def test_dry_run_takes_no_lease_and_is_not_recorded(opened: OpenTable, toy: list[JobContext]) -> None:
    held = opened.leases.acquire(TOY, "another")
    before = sorted(info.path for info in opened.base.store.list_objects(""))

    report = execute(opened, ToyRequest(dry_run=True))

    assert report.outcome is JobOutcome.PLANNED
    toy[0].guard()
    held.check()
    assert sorted(info.path for info in opened.base.store.list_objects("")) == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_request_that_contradicts_the_settings_does_not_even_begin(
    opened: OpenTable, toy: list[JobContext], dry_run: bool
) -> None:
    with pytest.raises(InvalidRequestError, match="senseless"):
        execute(opened, ToyRequest(senseless=True, dry_run=dry_run))

    assert toy == []
    assert opened.leases.read(TOY) is None
    assert opened.ledger.runs() == []


@pytest.mark.parametrize(
    ("error", "outcome", "failures"),
    [
        (InvalidRequestError, RunOutcome.REFUSED, 0),
        (ConflictError, RunOutcome.CONFLICT, 1),
        (CorruptionError, RunOutcome.BLOCKED, 1),
        (UnavailableError, RunOutcome.FAILED, 1),
    ],
)
def test_error_of_a_job_is_recorded_by_what_it_means_and_its_lease_is_given_back(
    opened: OpenTable,
    monkeypatch: pytest.MonkeyPatch,
    error: type[MemwalError],
    outcome: RunOutcome,
    failures: int,
) -> None:
    def fail(_context: JobContext) -> JobOutcome:
        raise error("the toy broke", remedy="mend it")

    ends_with(monkeypatch, fail)
    with pytest.raises(error):
        execute(opened, ToyRequest())

    (run,) = opened.ledger.runs("toy")
    assert (run.outcome, run.error, run.verdict) == (outcome, error.__name__, "the toy broke")
    assert isinstance(run.facts[PEAK_MEMORY_FACT], int)
    assert opened.ledger.may_run(TOY).failures == failures
    assert holder_now(opened) is None


@pytest.mark.parametrize("request_", [ToyRequest(), BoldRequest()], ids=["toy", "bold"])
def test_version_that_was_removed_under_a_run_is_a_conflict_and_not_a_table_that_is_missing(
    opened: OpenTable, monkeypatch: pytest.MonkeyPatch, request_: ToyRequest
) -> None:
    def reads_late(context: JobContext) -> JobOutcome:
        read = context.base.dataset().version
        context.base.dataset().add_columns(pa.field("later", pa.int32()))
        remove_versions(context.base, [read])
        context.base.dataset(read)
        return JobOutcome.DONE

    ends_with(monkeypatch, reads_late)
    with pytest.raises(ConflictError, match="removed while this run read it") as failed:
        execute(opened, request_)

    assert failed.value.facts["version"] < opened.base.dataset().version
    assert opened.ledger.runs("toy")[0].outcome is RunOutcome.CONFLICT


def test_what_is_missing_of_a_version_that_stands_is_no_conflict(
    opened: OpenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads_what_is_lost(context: JobContext) -> JobOutcome:
        read = context.base.dataset().version
        context.base.dataset().add_columns(pa.field("later", pa.int32()))
        raise ObjectNotFoundError("a data file does not exist", remedy="run `memwal doctor`", version=read)

    ends_with(monkeypatch, reads_what_is_lost)
    with pytest.raises(ObjectNotFoundError, match="data file"):
        execute(opened, ToyRequest())


def test_failures_before_a_refused_request_still_count(opened: OpenTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (UnavailableError, UnavailableError, InvalidRequestError):

        def fail(_context: JobContext, error: type[MemwalError] = error) -> JobOutcome:
            raise error("the toy broke", remedy="mend it")

        ends_with(monkeypatch, fail)
        with pytest.raises(error):
            execute(opened, ToyRequest())

    assert opened.ledger.may_run(TOY).failures == 2


def test_run_is_recorded_with_reason_facts_and_memory(opened: OpenTable) -> None:
    execute(opened, ToyRequest())

    (run,) = opened.ledger.runs("toy")
    assert (run.outcome, run.verdict, run.error) == (RunOutcome.DONE, "it was asked to", "")
    assert set(run.facts) == {"version", PEAK_MEMORY_FACT, MEMORY_LIMIT_FACT}
    assert run.facts["version"] == 7


@pytest.mark.req("T6")
@pytest.mark.parametrize("before", ["died", "ended"])
def test_run_after_one_that_died_says_so_before_it_works(
    opened: OpenTable, before: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may die at the same file, and then nothing is said any more."""
    said = []

    def end(_context: JobContext) -> JobOutcome:
        said.append(caplog.text)
        return JobOutcome.DONE

    ends_with(monkeypatch, end)
    if before == "died":
        opened.ledger.begin(opened.new_run(TOY, "somebody who dies"))
    else:
        execute(opened, ToyRequest())

    execute(opened, ToyRequest())

    assert ("memwal doctor --deep" in said[-1]) == (before == "died")
    assert ("the run of toy" in said[-1]) == (before == "died")


@pytest.mark.req("T6")
def test_signal_of_a_job_whose_process_died_names_job_and_command(opened: OpenTable) -> None:
    for number in range(3):
        opened.ledger.begin(opened.new_run(TOY, f"who dies as number {number}"))

    *_, reading = job_readings(Histories(opened.ledger))

    assert (reading.signal, reading.value, reading.subject) == (Signal.JOB_FAILURES, 2, str(TOY))
    assert "memwal doctor --deep" in reading.remedy


def test_ledger_that_cannot_be_written_keeps_no_job_from_working(
    opened: OpenTable, toy: list[JobContext], caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Path(opened.uri, "_mem_wal", "_ledger")
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("a file, where a directory is needed")

    assert execute(opened, ToyRequest()).outcome is JobOutcome.DONE
    assert len(toy) == 1
    assert caplog.text.count("run not recorded") == 2


def test_executors_and_progress_reach_the_job(opened: OpenTable, toy: list[JobContext]) -> None:
    executors, told = PicklingExecutors(), []

    execute(opened, ToyRequest(), executors=executors, progress=lambda *stage: told.append(stage))

    toy[0].progress("read", 1, 2)
    assert toy[0].executors is executors
    assert told == [("read", 1, 2)]


def test_log_says_every_half_minute_how_far_a_job_is(
    opened: OpenTable, toy: list[JobContext], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks of Airflow and services show no bar, and said nothing until they ended."""
    caplog.set_level("INFO", "memwal_core.jobs.progress")
    execute(opened, ToyRequest())

    for done in range(5):
        toy[0].progress("read", done, 5)
        clock.advance(10)
    assert [each.message for each in caplog.records if each.name == "memwal_core.jobs.progress"] == [
        f"toy: read: 3 of 5 [table={opened.uri}]"
    ]


SAME_EVERYWHERE: tuple[JobRequest, ...] = (
    FlushRequest(due_only=True),
    MergeRequest(),
    VerifyRequest(),
    CatchupRequest(),
    CompactRequest(remove_versions=True),
    SnapshotRequest(),
    GcRequest(dry_run=False),
)
"""What a cycle runs with ``delete`` and ``remove_versions``, so that each way asks for the same."""


def by_library(uri: str) -> None:
    table = Table.open(uri)
    for request in SAME_EVERYWHERE:
        table.run(request)


def by_command(uri: str) -> None:
    flags = {"flush": ["--due-only"], "compact": ["--remove-versions"], "gc": ["--yes"]}
    for request in SAME_EVERYWHERE:
        ended = CliRunner().invoke(app, [request.info.name, uri, *flags.get(request.info.name, [])])
        assert ended.exit_code in (0, 3), ended.output


def by_document(uri: str) -> None:
    for request in SAME_EVERYWHERE:
        document = JobDocument(uri=uri, request=request.to_json(), ok_when_nothing=True)
        assert main(request.info.name, [document.to_text()]) == 0


def by_cycle(uri: str) -> None:
    Table.open(uri).run(MaintainRequest(delete=True, remove_versions=True))


WAYS = (by_library, by_command, by_document, by_cycle)


def remembered(tmp_path: Path, way: Callable[[str], None]) -> dict[str, RunRecord]:
    """Run all jobs of a table in one way, and return the first run of each that the ledger has."""
    table = make_people_table(str(tmp_path / way.__name__), rows=people(1, 2), buckets=1)
    table.dataset().create_scalar_index("score", "BTREE")
    write_generations(table, [1, 5], [5, 6], name="a")
    way(table.uri)
    found: dict[str, RunRecord] = {}
    for run in Table.open(table.uri).opened.ledger.runs():
        found.setdefault(run.key.job, run)
    return found


def test_run_leaves_the_same_in_the_ledger_whoever_started_it(tmp_path: Path) -> None:
    """Commands that act left no trace, and each way of starting a job recorded facts of its own."""
    ways = {way.__name__: remembered(tmp_path, way) for way in WAYS}

    jobs = {request.info.name for request in SAME_EVERYWHERE}
    assert "maintain" in ways["by_cycle"]
    del ways["by_cycle"]["maintain"]
    assert {name: set(runs) for name, runs in ways.items()} == dict.fromkeys(ways, jobs)
    expected = ways["by_library"]
    for name, runs in ways.items():
        for job, run in runs.items():
            assert set(run.facts) == set(expected[job].facts), (name, job)
            assert (run.key, run.outcome) == (expected[job].key, expected[job].outcome), (name, job)
            assert {PEAK_MEMORY_FACT, MEMORY_LIMIT_FACT} <= set(run.facts), (name, job)
            assert run.verdict, (name, job)
            assert run.holder, (name, job)
            assert (run.fencing_token > 0) == (job != "verify"), (name, job)  # it only reads, under no lease
            assert json.loads(json.dumps(dict(run.facts))) == dict(run.facts), (name, job)
        merged = runs["merge"]
        assert (merged.outcome, merged.facts["rows"], merged.facts["generations"]) == (RunOutcome.DONE, 3, 2), name


def test_request_that_the_table_refuses_is_no_failure_whoever_sent_it(tmp_path: Path) -> None:
    uri = make_people_table(str(tmp_path / "t"), buckets=1).uri
    nowhere = native_region_id(9)

    with pytest.raises(InvalidRequestError):
        Table.open(uri).run(MergeRequest(regions=(nowhere,)))
    assert isinstance(CliRunner().invoke(app, ["merge", uri, "--region", str(nowhere)]).exception, InvalidRequestError)
    assert main("merge", [JobDocument(uri=uri, request={"regions": [str(nowhere)]}).to_text()]) == 2

    ledger = Table.open(uri).opened.ledger
    assert [run.outcome for run in ledger.runs("merge")] == [RunOutcome.REFUSED] * 3
    assert ledger.may_run(JobKey("merge")).failures == 0
