"""Leases of a run: one task takes them, the tasks that work carry their tickets, a last one gives them back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from memwal_core.airflow.tasks.tables import find_table, open_table
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseTicket, parse_ticket
from memwal_core.errors import FencedError, MemwalError
from memwal_core.registry import RegisteredTable
from memwal_core.table import Table

_log = logging.getLogger(__name__)


def take(table: RegisteredTable, key: JobKey, holder: str) -> str:
    """Take a lease for a run.

    Args:
        table: Where.
        key: What to lease.
        holder: The run's id. The same run takes its own lease over with a new token, which fences
            whatever is left of an earlier attempt.

    Returns:
        The ticket, as text.

    Raises:
        ConflictError: Another run has it. Try again later.
    """
    ticket = open_table(table).opened.leases.acquire(key, holder).ticket
    _log.info("lease taken [ticket=%s]", ticket)
    return str(ticket)


def give_back(tickets: Iterable[tuple[str, str]]) -> Sequence[str]:
    """Give leases back, as well as possible: one that cannot be given back ends by itself.

    Args:
        tickets: Name of the table, and ticket, of each.

    Returns:
        The tickets that were given back; the others were lost before.
    """
    returned = []
    for name, text in tickets:
        try:
            table = open_table(find_table(name))
        except MemwalError as error:
            _log.warning("lease not given back, it will expire [ticket=%s]: %s", text, error)
            continue
        if _release(table, parse_ticket(text)):
            returned.append(text)
    return returned


def _release(table: Table, ticket: LeaseTicket) -> bool:
    with suppress(FencedError):
        return table.opened.leases.resume(ticket).release()
    _log.info("lease was lost before [ticket=%s]", ticket)
    return False
