"""A merge that lost its lease commits nothing more, on real tables."""

from __future__ import annotations

import json
from datetime import timedelta

import lance
import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseHeldError, parse_ticket
from memwal_core.errors import FencedError, InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome, no_lease
from memwal_core.settings import LeaseSettings, MergeSettings, Settings
from memwal_core.spark.application import main
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people

MERGE = JobKey("merge")
LEASE = LeaseSettings()


class TakeoverAfterCommit:
    """The lease runs out after the first commit, and somebody else takes it."""

    def __init__(self, admin, clock):
        self.admin, self.clock, self.successor = admin, clock, None

    def __call__(self, stage, done, total):
        if stage == "committed" and done and self.successor is None:
            self.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
            self.successor = self.admin.opened.leases.acquire(MERGE, "successor")


def two_generations(uri, deletes):
    make_people_table(uri, rows=people(*range(5)))
    second = [Put(people(1, name="new"))]
    if deletes:
        second.append(Delete(people(2).select(["id"])))
    write_native_generations(uri, native_region_id(1), [[Put(people(1, 10, name="old"))], second])


def rows(admin):
    found = lance.dataset(admin.base.uri).to_table().select(PEOPLE.names).sort_by("id")
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


@pytest.fixture(params=[False, True], ids=["upserts", "with deletes"])
def admin(request, tmp_path):
    two_generations(str(tmp_path / "t"), request.param)
    settings = Settings(merge=MergeSettings(max_generations=1), lease=LEASE)
    return Table.open(str(tmp_path / "t"), settings=settings, clock=ManualClock())


@pytest.mark.req("MRG-28", "LEASE-20")
def test_merge_under_its_lease_merges_everything(admin):
    with admin.opened.leases.acquire(MERGE, "run-1") as lease:
        report = admin.run(MergeRequest(), guard=lease.check)
    assert report.outcome is JobOutcome.DONE
    assert rows(admin)[1] == "new"


@pytest.mark.req("MRG-28", "LEASE-10", "LEASE-42")
def test_merge_with_an_outdated_token_commits_nothing(admin):
    ticket = admin.opened.leases.acquire(MERGE, "run-1").ticket
    late = admin.opened.leases.resume(parse_ticket(str(ticket)))
    admin.base.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
    admin.opened.leases.acquire(MERGE, "run-2")
    version = admin.base.dataset().version
    with pytest.raises(FencedError):
        admin.run(MergeRequest(), guard=late.check)
    assert admin.base.dataset().version == version


@pytest.mark.req("MRG-28", "LEASE-15")
def test_merge_that_loses_its_lease_between_two_commits_stops_there_and_the_successor_finishes(admin):
    lease = admin.opened.leases.acquire(MERGE, "run-1")
    takeover = TakeoverAfterCommit(admin, admin.base.clock)
    with pytest.raises(FencedError):
        admin.run(MergeRequest(), guard=lease.check, progress=takeover)
    details = admin.base.state().require_details()
    assert details.merged_generation(native_region_id(1)) == 1
    assert rows(admin)[1] == "old"

    report = admin.run(MergeRequest(), guard=takeover.successor.check)
    assert report.outcome is JobOutcome.DONE
    assert rows(admin)[1] == "new"


class WatchedLease:
    """Notes who holds the lease of the merge whenever something was committed."""

    def __init__(self, admin):
        self.admin, self.holders = admin, []

    def __call__(self, stage, done, total):
        if stage == "committed" and done:
            stored = self.admin.opened.leases.read(MERGE)
            self.holders.append(stored.document.holder if is_held(self.admin) else None)


def is_held(admin):
    stored = admin.opened.leases.read(MERGE)
    return stored is not None and not stored.document.is_free(
        admin.base.clock.now(), timedelta(0), timedelta(seconds=LEASE.ttl_s)
    )


@pytest.mark.req("MRG-14", "MRG-26", "LEASE-20")
def test_merge_takes_the_lease_and_gives_it_back(admin):
    watched = WatchedLease(admin)
    assert admin.run(MergeRequest(), holder="run-1", progress=watched).outcome is JobOutcome.DONE
    assert set(watched.holders) == {"run-1"}
    assert not is_held(admin)


@pytest.mark.req("MRG-26", "LEASE-06")
def test_second_merge_is_refused_with_holder_and_expiry_and_commits_nothing(admin):
    held = admin.opened.leases.acquire(MERGE, "run-1")
    version = admin.base.dataset().version
    with pytest.raises(LeaseHeldError) as refused:
        admin.run(MergeRequest(), holder="run-2")
    assert refused.value.exit_code == 4
    assert refused.value.facts["holder"] == "run-1"
    assert refused.value.facts["expires_at"] == held.document.expires_at.isoformat()
    assert admin.base.dataset().version == version


@pytest.mark.req("MRG-26")
@pytest.mark.parametrize(
    ("request_", "guard"),
    [(MergeRequest(dry_run=True), None), (MergeRequest(), no_lease)],
    ids=["dry run", "without a lease"],
)
def test_held_lease_does_not_hinder_what_takes_none(admin, request_, guard):
    held = admin.opened.leases.acquire(MERGE, "run-1")
    admin.run(request_, guard=guard)
    held.check()
    assert admin.opened.leases.read(MERGE).document == held.document


@pytest.mark.req("MRG-28", "LEASE-42")
def test_merge_under_a_ticket_leaves_the_lease_to_whoever_took_it(admin):
    lease = admin.opened.leases.acquire(MERGE, "run-1")
    assert admin.run(MergeRequest(), ticket=lease.ticket).outcome is JobOutcome.DONE
    assert is_held(admin)
    lease.check()


@pytest.mark.req("MRG-28", "LEASE-15")
def test_merge_that_loses_the_lease_it_took_stops(admin):
    with pytest.raises(FencedError):
        admin.run(MergeRequest(), progress=TakeoverAfterCommit(admin, admin.base.clock))
    assert admin.base.state().require_details().merged_generation(native_region_id(1)) == 1


@pytest.mark.req("MRG-26")
def test_merge_that_fails_gives_its_lease_back(admin):
    with pytest.raises(InvalidRequestError):
        admin.run(MergeRequest(regions=(native_region_id(99),)))
    assert not is_held(admin)


@pytest.mark.req("MRG-26", "LEASE-06")
def test_spark_job_is_refused_while_another_run_merges_and_leaves_no_run(admin, capsys):
    now = Table.open(admin.base.uri)
    held = now.opened.leases.acquire(MERGE, "run-1")

    assert main("merge", [json.dumps({"uri": admin.base.uri, "holder": "run-2"})]) == 4

    said = capsys.readouterr().err
    assert "run-1" in said
    assert held.document.expires_at.isoformat() in said
    assert now.opened.ledger.runs("merge") == []


@pytest.mark.req("MRG-28")
def test_takeover_in_the_middle_of_a_commit_is_caught_by_the_commit_itself(admin):
    """Between the token check and the commit the successor merges everything; the late commit gives way."""
    lease = admin.opened.leases.acquire(MERGE, "run-1")
    rival = Table.open(admin.base.uri)
    overtaken = []

    def check_then_lose():
        lease.check()
        if not overtaken:
            overtaken.append(1)
            admin.base.clock.advance(LEASE.ttl_s + LEASE.expiry_margin_s)
            admin.opened.leases.acquire(MERGE, "successor")
            rival.run(MergeRequest(), guard=no_lease)

    try:
        report = admin.run(MergeRequest(), guard=check_then_lose)
        outcome = report.generations
    except FencedError:
        outcome = 0
    assert outcome == 0
    assert rows(admin)[1] == "new"
    assert admin.base.state().require_details().merged_generation(native_region_id(1)) == 2
