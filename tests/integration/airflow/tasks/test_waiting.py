"""Waiting for leases and for grace periods as the triggerer does it, without servers."""

from __future__ import annotations

import asyncio
import importlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memwal_core.airflow.tasks import tables
from memwal_core.airflow.tasks.work import WantedLease, plan_work, wanted_leases
from memwal_core.airflow.triggers import GraceTrigger, LeaseFreeTrigger
from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import Lease
from memwal_core.errors import UnavailableError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

SOON = datetime(2100, 1, 1, tzinfo=UTC).isoformat()
OVER = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
RUN = "memwal_merge/manual__2026-01-01T00:00:00+00:00"


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    with TableWriter.open(made) as writer:
        writer.put(people(3, 4))
        writer.flush()
    return made


def wanted(table: BaseTable) -> list[WantedLease]:
    params = {"table": table.uri, "regions": [], "max_bytes": None, "dry_run": False}
    return wanted_leases(plan_work("merge", params))


def taken(table: BaseTable, holder: str) -> Lease:
    return Table.open(table.uri).opened.leases.acquire(JobKey("merge"), holder)


def fire(trigger: LeaseFreeTrigger | GraceTrigger, meanwhile: Any = None) -> dict[str, Any]:
    async def first() -> dict[str, Any]:
        events = trigger.run()
        waiting = asyncio.ensure_future(anext(events))
        if meanwhile is not None:
            await asyncio.sleep(0.2)
            assert not waiting.done()
            meanwhile()
        return dict((await waiting).payload)

    return asyncio.run(first())


def test_fires_when_the_lease_is_given_back(table: BaseTable) -> None:
    lease = taken(table, "somebody else")

    event = fire(LeaseFreeTrigger(wanted(table), RUN, SOON, poll_s=0.05), lease.release)

    assert event == {"free": True, "holder": None, "until": SOON}


def test_fires_with_the_rival_when_waiting_is_over(table: BaseTable) -> None:
    taken(table, "somebody else")

    event = fire(LeaseFreeTrigger(wanted(table), RUN, OVER, poll_s=0.05))

    assert event["free"] is False
    assert event["holder"].startswith("merge/table of somebody else, until ")


def test_lease_of_the_run_itself_keeps_it_not_waiting(table: BaseTable) -> None:
    taken(table, RUN)

    assert fire(LeaseFreeTrigger(wanted(table), RUN, OVER, poll_s=0.05))["free"] is True


def test_trigger_survives_being_stored(table: BaseTable) -> None:
    grace = GraceTrigger(wanted(table)[0]["table"], str(taken(table, RUN).ticket), SOON, {"outcome": "done"})
    for trigger in (LeaseFreeTrigger(wanted(table), RUN, SOON), grace):
        path, values = json.loads(json.dumps(trigger.serialize()))
        module, _, name = path.rpartition(".")
        rebuilt = getattr(importlib.import_module(module), name)(**values)

        assert rebuilt.serialize() == trigger.serialize()
        assert "secret" not in json.dumps(values)


def grace(table: BaseTable, lease: Lease, until: str) -> GraceTrigger:
    return GraceTrigger(wanted(table)[0]["table"], str(lease.ticket), until, {"outcome": "done"}, poll_s=0.05)


def test_grace_period_ends_with_the_lease_kept(table: BaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMWAL_LEASE__TTL_S", "0.5")
    monkeypatch.setenv("MEMWAL_LEASE__RENEW_AFTER_S", "0.1")
    lease = taken(table, RUN)

    event = fire(grace(table, lease, (SystemClock().now() + timedelta(seconds=1)).isoformat()))

    assert event == {"fenced": False, "begun": {"outcome": "done"}}
    stored = Table.open(table.uri).opened.leases.read(JobKey("merge"))
    assert stored is not None
    assert stored.document.expires_at > lease.document.expires_at


def test_lost_lease_ends_the_grace_period_at_once(table: BaseTable) -> None:
    lease = taken(table, RUN)

    def lose() -> None:
        lease.release()
        taken(table, "somebody else")

    assert fire(grace(table, lease, SOON), lose) == {"fenced": True, "begun": {"outcome": "done"}}


def test_store_that_does_not_answer_does_not_end_the_grace_period(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, check, failed = taken(table, RUN), Lease.check, list[bool]()

    def check_later(self: Lease) -> None:
        if not failed:
            failed.append(True)
            raise UnavailableError("the store does not answer", remedy="try again")
        check(self)

    monkeypatch.setattr(Lease, "check", check_later)

    assert fire(grace(table, lease, SOON), lease.release)["fenced"] is True
    assert failed


@pytest.mark.parametrize("waits_for", ["lease", "grace period"])
def test_store_that_does_not_answer_as_the_waiting_begins_does_not_end_it(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """A triggerer that started beside such a store, or one of Airflow's secrets, failed all tasks that waited."""
    held, opened, failed = taken(table, RUN), tables.open_here, list[bool]()
    is_for_lease = waits_for == "lease"
    trigger = (
        LeaseFreeTrigger(wanted(table), "another run", SOON, poll_s=0.05) if is_for_lease else grace(table, held, SOON)
    )

    def open_later(*arguments: Any) -> Table:
        if not failed:
            failed.append(True)
            raise UnavailableError("the store does not answer", remedy="try again")
        return opened(*arguments)

    monkeypatch.setattr(tables, "open_here", open_later)

    event = fire(trigger, held.release)

    assert failed
    assert event["free" if is_for_lease else "fenced"] is True


def test_store_that_never_answers_ends_the_waiting_when_it_is_over(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_never(*_: Any) -> Table:
        raise UnavailableError("the store does not answer", remedy="try again")

    held, waiting = taken(table, RUN), LeaseFreeTrigger(wanted(table), "another run", OVER, poll_s=0.05)
    pausing = grace(table, held, OVER)
    monkeypatch.setattr(tables, "open_here", open_never)

    assert fire(waiting) == {"free": False, "holder": f"{table.uri}, which does not answer", "until": OVER}
    assert fire(pausing) == {"fenced": False, "begun": {"outcome": "done"}}


def test_each_piece_of_work_wants_its_own_lease_once(table: BaseTable) -> None:
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    Table.open(table.uri).run(MergeRequest())
    params = {"table": table.uri, "dry_run": False}
    items = plan_work("catchup", params)

    found = wanted_leases([*items, *items])

    assert [(each["job"], each["scope"]) for each in found] == [("catchup", "index-name_idx")]
