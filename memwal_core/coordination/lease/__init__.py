"""Leases of background jobs: who works on what, and the token that fences everybody else.

Owns ``_mem_wal/_leases/``. A lease saves two tasks from doing the same work; that a late task does
no harm rests on two layers, the token check before each write (``Lease.check``) and the
compare-and-swap of the write itself. May import the register, storage and what lies below.
"""

from memwal_core.coordination.lease.document import LeaseDocument, check_lease_change, decode_lease, encode_lease
from memwal_core.coordination.lease.held import Lease
from memwal_core.coordination.lease.keeper import LeaseKeeper
from memwal_core.coordination.lease.store import LEASE_SUFFIX, LeaseHeldError, LeaseStore, StoredLease
from memwal_core.coordination.lease.ticket import LeaseTicket, parse_ticket

__all__ = [
    "LEASE_SUFFIX",
    "Lease",
    "LeaseDocument",
    "LeaseHeldError",
    "LeaseKeeper",
    "LeaseStore",
    "LeaseTicket",
    "StoredLease",
    "check_lease_change",
    "decode_lease",
    "encode_lease",
    "parse_ticket",
]
