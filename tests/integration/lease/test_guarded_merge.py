"""A merge that lost its lease commits nothing more, on real tables."""

from __future__ import annotations

import lance
import pytest

from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.errors import FencedError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import parse_ticket
from memwal_core.maintenance.merge import MergeOutcome, Silent
from memwal_core.settings import LeaseSettings, MergeSettings, Settings
from memwal_core.testing.clock import ManualClock
from memwal_core.testing.native_regions import Delete, Put, native_region_id, write_native_generations
from memwal_core.testing.tables import PEOPLE, make_people_table, people

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
    assert report.outcome is MergeOutcome.DONE
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
    assert report.outcome is MergeOutcome.DONE
    assert rows(admin)[1] == "new"


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
            rival.merge()

    try:
        report = admin.merge(MergeRequest(check_lease=check_then_lose))
        outcome = report.generations
    except FencedError:
        outcome = 0
    assert outcome == 0
    assert rows(admin)[1] == "new"
    assert admin.table.state().require_details().merged_generation(native_region_id(1)) == 2
