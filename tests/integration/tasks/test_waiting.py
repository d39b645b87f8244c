"""Waiting for a lease as the triggerer does it, without servers."""

from __future__ import annotations

import asyncio
import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import Lease
from memwal_core.tasks.merge import plan_merge
from memwal_core.tasks.steps import plan_step
from memwal_core.tasks.waiting import LeaseFreeTrigger, WantedLease, wanted_leases
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter

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
    params = {"table": table.uri, "regions": [], "max_bytes": None, "dry_run": False, "storage_options": {}}
    return wanted_leases(plan_merge(params))  # type: ignore[arg-type]


def taken(table: BaseTable, holder: str) -> Lease:
    return TableAdmin.open(table.uri).insight.leases.acquire(JobKey("merge"), holder)


def fire(trigger: LeaseFreeTrigger, meanwhile: Any = None) -> dict[str, Any]:
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

    assert event == {"free": True, "holder": None}


def test_fires_with_the_rival_when_waiting_is_over(table: BaseTable) -> None:
    taken(table, "somebody else")

    event = fire(LeaseFreeTrigger(wanted(table), RUN, OVER))

    assert event["free"] is False
    assert event["holder"].startswith("merge/table of somebody else, until ")


def test_lease_of_the_run_itself_keeps_it_not_waiting(table: BaseTable) -> None:
    taken(table, RUN)

    assert fire(LeaseFreeTrigger(wanted(table), RUN, OVER))["free"] is True


def test_trigger_survives_being_stored(table: BaseTable) -> None:
    trigger = LeaseFreeTrigger(wanted(table), RUN, SOON)

    path, values = json.loads(json.dumps(trigger.serialize()))
    module, _, name = path.rpartition(".")
    rebuilt = getattr(importlib.import_module(module), name)(**values)

    assert rebuilt.serialize() == trigger.serialize()
    assert "secret" not in json.dumps(values)


def test_each_piece_of_work_wants_its_own_lease_once(table: BaseTable) -> None:
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    TableAdmin.open(table.uri).merge()
    params = {"table": table.uri, "dry_run": False, "storage_options": {}, "storage_connection": None}
    items = plan_step("catchup", params)

    found = wanted_leases([*items, *items])

    assert [(each["job"], each["scope"]) for each in found] == [("catchup", "index-name_idx")]
