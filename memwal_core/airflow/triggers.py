"""What the triggerer waits for: leases that other runs hold, and the end of a grace period.

Meanwhile a task takes neither a worker nor a pool slot. Imported by the task that defers and by the
triggerer. What a task needs after waiting is in the event, because ``airflow dags test`` hands over nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from memwal_core.errors import FencedError, MemwalError, UnavailableError

if TYPE_CHECKING:
    from memwal_core.airflow.tasks.work import WantedLease
    from memwal_core.coordination.lease import Lease
    from memwal_core.table import Table

POLL_S = 15.0
"""Seconds between looks, and before the first one: Airflow 3.3 takes a task for lost that goes on before its scheduler
has heard that the process that deferred it has ended."""


class _LooksAtTables(BaseTrigger):
    """A trigger that looks at tables."""

    async def _open(self, name: str) -> Table | None:
        """Open a table; None while its store, or what keeps Airflow's secrets, does not answer."""
        # Importing the library takes seconds, in which other triggers have to go on.
        tables = await asyncio.to_thread(import_module, "memwal_core.airflow.tasks.tables")
        try:
            table = await asyncio.to_thread(tables.find_table, name)
            # Connections are asked of Airflow, through this process's own event loop.
            options = await sync_to_async(tables.storage_options)(table)
            opened: Table = await asyncio.to_thread(tables.open_here, table.uri, options)
        except UnavailableError as error:
            self.log.warning("the table cannot be opened, which is tried again: %s", error)
            return None
        return opened


class LeaseFreeTrigger(_LooksAtTables):
    """Fires when every wanted lease may be taken, or when waiting is over. Holds no secrets.

    Its event has ``free``, ``holder`` (who is in the way, or None) and ``until``.

    Args:
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
        """Look again and again; yields one event."""
        until = datetime.fromisoformat(self.until)
        tables: list[Table | None] = [None] * len(self.wanted)
        while True:
            await asyncio.sleep(self.poll_s)
            tables = [
                await self._open(each["table"]) if table is None else table
                for table, each in zip(tables, self.wanted, strict=True)
            ]
            rival = await asyncio.to_thread(self._rival, tables)
            if rival is None or _now() >= until:
                yield TriggerEvent(  # type: ignore[no-untyped-call]
                    {"free": rival is None, "holder": rival, "until": self.until}
                )
                return
            self.log.info("waiting for %s", rival)

    def _rival(self, tables: Sequence[Table | None]) -> str | None:
        from memwal_core.coordination.job_key import JobKey

        for wanted, table in zip(self.wanted, tables, strict=True):
            if table is None:
                return f"{wanted['table']}, which does not answer"
            key = JobKey(wanted["job"], wanted["scope"])
            try:
                rival = table.opened.leases.in_other_hands(key, self.holder)
            except UnavailableError as error:
                return f"the store: {error.what}"
            if rival is not None:
                return f"{key} of {rival.document.holder}, until {rival.document.expires_at.isoformat()}"
        return None


class GraceTrigger(_LooksAtTables):
    """Keeps a lease until a moment, and fires then; at once when the lease is lost. Holds no secrets.

    Its event has ``fenced`` and ``begun``.

    Args:
        until: The moment, ISO 8601 with timezone.
        begun: What the task had done before it waited, for the event.
        poll_s: Seconds between looks at the lease; well below its time to live.
    """

    def __init__(self, table: str, ticket: str, until: str, begun: Mapping[str, Any], poll_s: float = POLL_S) -> None:
        """Keep the values."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.ticket = ticket
        self.until = until
        self.begun = begun
        self.poll_s = poll_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, as Airflow stores them."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "table": self.table,
            "ticket": self.ticket,
            "until": self.until,
            "begun": self.begun,
            "poll_s": self.poll_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the lease again and again, which renews it when that is due; yields one event."""
        until = datetime.fromisoformat(self.until)
        table: Table | None = None
        lease: Lease | None = None
        fenced = False
        while True:
            await asyncio.sleep(self.poll_s)
            if table is None:
                table = await self._open(self.table)
            if table is not None:
                lease, fenced = await asyncio.to_thread(self._keep, table, lease)
            if fenced or _now() >= until:
                yield TriggerEvent({"fenced": fenced, "begun": self.begun})  # type: ignore[no-untyped-call]
                return

    def _keep(self, table: Table, lease: Lease | None) -> tuple[Lease | None, bool]:
        """Return the lease, which is None until the store answered once, and whether it is lost."""
        from memwal_core.coordination.lease import parse_ticket

        try:
            if lease is None:
                return table.opened.leases.resume(parse_ticket(self.ticket)), False
            lease.check()
        except FencedError as error:
            self.log.warning("%s", error)
            return lease, True
        except MemwalError as error:
            # Whoever goes on afterwards checks the lease anew before it touches anything.
            self.log.warning("the lease could not be looked at, which is tried again: %s", error)
        return lease, False


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock of memwal_core may not be imported yet
