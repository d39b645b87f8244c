"""A merge that lost its lease commits nothing more, on real tables."""

from __future__ import annotations

import runpy
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.errors import FencedError, InvalidRequestError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseHeldError, parse_ticket
from memwal_core.maintenance.ledger import RunOutcome
from memwal_core.maintenance.merge import Silent
from memwal_core.maintenance.outcome import JobOutcome, no_lease
from memwal_core.settings import LeaseSettings, MergeSettings, Settings
from memwal_core.testing.clock import ManualClock
from memwal_core.testing.native_regions import Delete, Put, native_region_id, write_native_generations
from memwal_core.testing.tables import PEOPLE, make_people_table, people

JOB = Path(__file__).parents[3] / "jobs" / "merge.py"
MERGE = JobKey("merge")
LEASE = LeaseSettings()


class TakeoverAfterCommit(Silent):
    """The lease runs out after the first commit, and somebody else takes it."""

    def __init__(self, admin, clock):
        self.admin, self.clock, self.successor = admin, clock, None

    def committed(self, commit):
        if self.successor is None:
            self.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
            self.successor = self.admin.insight.leases.acquire(MERGE, "successor")


def two_generations(uri, deletes):
    make_people_table(uri, rows=people(*range(5)))
    second = [Put(people(1, name="new"))]
    if deletes:
        second.append(Delete(people(2).select(["id"])))
    write_native_generations(uri, native_region_id(1), [[Put(people(1, 10, name="old"))], second])


def rows(admin):
    found = lance.dataset(admin.table.uri).to_table().select(PEOPLE.names).sort_by("id")
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


@pytest.fixture(params=[False, True], ids=["upserts", "with deletes"])
def admin(request, tmp_path):
    two_generations(str(tmp_path / "t"), request.param)
    settings = Settings(merge=MergeSettings(max_generations=1), lease=LEASE)
    return TableAdmin.open(str(tmp_path / "t"), settings=settings, clock=ManualClock())


@pytest.mark.req("MRG-28", "LEASE-20")
def test_merge_under_its_lease_merges_everything(admin):
    with admin.insight.leases.acquire(MERGE, "run-1") as lease:
        report = admin.merge(MergeRequest(check_lease=lease.check))
    assert report.outcome is JobOutcome.DONE
    assert rows(admin)[1] == "new"


@pytest.mark.req("MRG-28", "LEASE-10", "LEASE-42")
def test_merge_with_an_outdated_token_commits_nothing(admin):
    ticket = admin.insight.leases.acquire(MERGE, "run-1").ticket
    late = admin.insight.leases.resume(parse_ticket(str(ticket)))
    admin.table.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
    admin.insight.leases.acquire(MERGE, "run-2")
    version = admin.table.dataset().version
    with pytest.raises(FencedError):
        admin.merge(MergeRequest(check_lease=late.check))
    assert admin.table.dataset().version == version


@pytest.mark.req("MRG-28", "LEASE-15")
def test_merge_that_loses_its_lease_between_two_commits_stops_there_and_the_successor_finishes(admin):
    lease = admin.insight.leases.acquire(MERGE, "run-1")
    takeover = TakeoverAfterCommit(admin, admin.table.clock)
    with pytest.raises(FencedError):
        admin.merge(MergeRequest(check_lease=lease.check, progress=takeover))
    details = admin.table.state().require_details()
    assert details.merged_generation(native_region_id(1)) == 1
    assert rows(admin)[1] == "old"

    report = admin.merge(MergeRequest(check_lease=takeover.successor.check))
    assert report.outcome is JobOutcome.DONE
    assert rows(admin)[1] == "new"


class WatchedLease(Silent):
    """Notes who holds the lease of the merge whenever something was committed."""

    def __init__(self, admin):
        self.admin, self.holders = admin, []

    def committed(self, commit):
        stored = self.admin.insight.leases.read(MERGE)
        self.holders.append(stored.document.holder if is_held(self.admin) else None)


def is_held(admin):
    stored = admin.insight.leases.read(MERGE)
    return stored is not None and not stored.document.is_free(admin.table.clock.now(), timedelta(0))


@pytest.mark.req("MRG-14", "MRG-26", "LEASE-20")
def test_merge_takes_the_lease_and_gives_it_back(admin):
    watched = WatchedLease(admin)
    assert admin.merge(MergeRequest(holder="run-1", progress=watched)).outcome is JobOutcome.DONE
    assert set(watched.holders) == {"run-1"}
    assert not is_held(admin)


@pytest.mark.req("MRG-26", "LEASE-06")
def test_second_merge_is_refused_with_holder_and_expiry_and_commits_nothing(admin):
    held = admin.insight.leases.acquire(MERGE, "run-1")
    version = admin.table.dataset().version
    with pytest.raises(LeaseHeldError) as refused:
        admin.merge(MergeRequest(holder="run-2"))
    assert refused.value.exit_code == 4
    assert refused.value.facts["holder"] == "run-1"
    assert refused.value.facts["expires_at"] == held.document.expires_at.isoformat()
    assert admin.table.dataset().version == version


@pytest.mark.req("MRG-26")
@pytest.mark.parametrize(
    "unhindered", [MergeRequest(dry_run=True), MergeRequest(check_lease=no_lease)], ids=["dry run", "without a lease"]
)
def test_held_lease_does_not_hinder_what_takes_none(admin, unhindered):
    held = admin.insight.leases.acquire(MERGE, "run-1")
    admin.merge(unhindered)
    held.check()
    assert admin.insight.leases.read(MERGE).document == held.document


@pytest.mark.req("MRG-28", "LEASE-42")
def test_merge_under_a_ticket_leaves_the_lease_to_whoever_took_it(admin):
    lease = admin.insight.leases.acquire(MERGE, "run-1")
    assert admin.merge(MergeRequest(ticket=lease.ticket)).outcome is JobOutcome.DONE
    assert is_held(admin)
    lease.check()


@pytest.mark.req("MRG-28", "LEASE-15")
def test_merge_that_loses_the_lease_it_took_stops(admin):
    with pytest.raises(FencedError):
        admin.merge(MergeRequest(progress=TakeoverAfterCommit(admin, admin.table.clock)))
    assert admin.table.state().require_details().merged_generation(native_region_id(1)) == 1


@pytest.mark.req("MRG-26")
def test_merge_that_fails_gives_its_lease_back(admin):
    with pytest.raises(InvalidRequestError):
        admin.merge(MergeRequest(regions={native_region_id(99)}))
    assert not is_held(admin)


@pytest.mark.req("MRG-26", "LEASE-06")
def test_spark_job_is_refused_while_another_run_merges_and_records_it(admin, capsys):
    now = TableAdmin.open(admin.table.uri)
    held = now.insight.leases.acquire(MERGE, "run-1")

    assert runpy.run_path(str(JOB))["main"](["--uri", admin.table.uri, "--holder", "run-2"]) == 4

    said = capsys.readouterr().err
    assert "run-1" in said
    assert held.document.expires_at.isoformat() in said
    (run,) = now.insight.ledger.runs("merge")
    assert (run.holder, run.outcome) == ("run-2", RunOutcome.CONFLICT)


@pytest.mark.req("MRG-28")
def test_takeover_in_the_middle_of_a_commit_is_caught_by_the_commit_itself(admin):
    """Between the token check and the commit the successor merges everything; the late commit gives way."""
    lease = admin.insight.leases.acquire(MERGE, "run-1")
    rival = TableAdmin.open(admin.table.uri)
    overtaken = []

    def check_then_lose():
        lease.check()
        if not overtaken:
            overtaken.append(1)
            admin.table.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
            admin.insight.leases.acquire(MERGE, "successor")
            rival.merge(MergeRequest(check_lease=no_lease))

    try:
        report = admin.merge(MergeRequest(check_lease=check_then_lose))
        outcome = report.generations
    except FencedError:
        outcome = 0
    assert outcome == 0
    assert rows(admin)[1] == "new"
    assert admin.table.state().require_details().merged_generation(native_region_id(1)) == 2
