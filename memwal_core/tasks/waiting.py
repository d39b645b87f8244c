"""Waiting for leases that other runs hold, in Airflow's triggerer: no worker and no pool slot is taken meanwhile.

Imported by the task that defers and by the triggerer, which needs this package, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from memwal_core.admin import TableAdmin
from memwal_core.cli.options import open_admin
from memwal_core.clock import SystemClock
from memwal_core.errors import UnavailableError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.tasks import steps
from memwal_core.tasks.targets import Target, storage_options

POLL_S = 5.0


class WantedLease(TypedDict):
    """One lease that a run wants.

    Attributes:
        target: The table.
        job: Of its key.
        scope: Of its key.
    """

    target: Target
    job: str
    scope: str


def wanted_leases(items: Sequence[Mapping[str, Any]]) -> list[WantedLease]:
    """Return what the work of a run leases: of a merge one lease, of other jobs one per piece.

    Args:
        items: Of ``tasks.merge`` or of ``tasks.steps``.
    """
    found = []
    for item in items:
        key = steps.key_of(cast("steps.WorkItem", item)) if "job" in item else JobKey("merge")
        wanted = WantedLease(target=item["target"], job=key.job, scope=key.scope)
        if wanted not in found:
            found.append(wanted)
    return found


class LeaseFreeTrigger(BaseTrigger):
    """Fires when every wanted lease may be taken, or when waiting is over. Holds no secrets.

    Args:
        wanted: The leases.
        holder: Who wants them.
        until: When waiting is over, ISO 8601 with timezone.
        poll_s: Seconds between looks.
    """

    def __init__(self, wanted: list[WantedLease], holder: str, until: str, poll_s: float = POLL_S) -> None:
        """Keep the values."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = wanted
        self.holder = holder
        self.until = until
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, as Airflow stores them."""
        values = {"wanted": self.wanted, "holder": self.holder, "until": self.until, "poll_s": self.poll_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", values

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; yields one event, whose payload says whether the leases are free."""
        until, clock = datetime.fromisoformat(self.until), SystemClock()
        admins = [await self._open(each["target"]) for each in self.wanted]
        while True:
            rival = await asyncio.to_thread(self._rival, admins)
            if rival is None or clock.now() >= until:
                yield TriggerEvent({"free": rival is None, "holder": rival})  # type: ignore[no-untyped-call]
                return
            self.log.info("waiting for %s", rival)
            await asyncio.sleep(self.poll_s)

    async def _open(self, target: Target) -> TableAdmin:
        # Connections are asked of Airflow, through this process's own event loop.
        options = await sync_to_async(storage_options)(target)
        pairs = [f"{name}={value}" for name, value in options.items()]
        return await asyncio.to_thread(open_admin, target["uri"], pairs)

    def _rival(self, admins: Sequence[TableAdmin]) -> str | None:
        for wanted, admin in zip(self.wanted, admins, strict=True):
            key = JobKey(wanted["job"], wanted["scope"])
            try:
                rival = admin.insight.leases.in_other_hands(key, self.holder)
            except UnavailableError as error:
                return f"the store: {error.what}"
            if rival is not None:
                return f"{key} of {rival.document.holder}, until {rival.document.expires_at.isoformat()}"
        return None
