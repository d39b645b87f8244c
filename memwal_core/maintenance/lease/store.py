"""Taking leases, and looking at them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, ConflictError, InvalidRequestError
from memwal_core.ids import IdSource
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease.document import (
    FIRST_TOKEN,
    LeaseDocument,
    check_lease_change,
    decode_lease,
    encode_lease,
)
from memwal_core.maintenance.lease.held import Lease
from memwal_core.maintenance.lease.ticket import LeaseTicket
from memwal_core.register import VersionedRegister
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import LeaseSettings
from memwal_core.storage.layout import LEASES_DIRECTORY, job_directory
from memwal_core.storage.protocol import ObjectStore

LEASE_SUFFIX = ".json"
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


class LeaseHeldError(ConflictError):
    """Somebody else holds the lease. Do nothing; try again after it ends.

    ``facts`` has ``holder``, ``expires_at`` and ``fencing_token``.
    """


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease as it is stored.

    Attributes:
        key: What is leased.
        version: Version of the register.
        document: Its content.
    """

    key: JobKey
    version: int
    document: LeaseDocument


class LeaseStore:
    """All leases of one table, as versioned registers below ``_mem_wal/_leases/``.

    Args:
        store: The table's store.
        ids: Source of commit ids.
        settings: Time to live, margins, attempts.
        clock: Time.
        rng: Jitter between attempts.
    """

    def __init__(
        self, store: ObjectStore, ids: IdSource, *, settings: LeaseSettings, clock: Clock, rng: Rng | None = None
    ) -> None:
        """Keep the parts; nothing is read."""
        self._store = store
        self._ids = ids
        self._settings = settings
        self._clock = clock
        self._rng = rng if rng is not None else system_rng()

    def acquire(self, key: JobKey, holder: str) -> Lease:
        """Take a lease that is free.

        The present holder's own name counts as free: a task that is run again takes its lease over
        with a new token, which fences what is left of the first try.

        Args:
            key: What to lease.
            holder: Unique per run.

        Raises:
            LeaseHeldError: Somebody else holds it; the facts say who and until when.
            ConflictError: Others changed the lease each time. Try again.
            UnavailableError: The store does not answer. Try again with the same holder.
            InvalidRequestError: The holder is empty, or the key names no directory.
            CorruptionError: The stored document cannot be read.
        """
        if not holder.strip():
            raise InvalidRequestError("a lease needs a holder", remedy="name the run", holder=holder)
        register = self._register(key)
        for attempt in range(self._settings.max_attempts):
            if attempt:
                longest = min(_FIRST_WAIT_S * 2.0 ** (attempt - 1), _LONGEST_WAIT_S)
                self._clock.sleep(longest * self._rng.uniform(0.5, 1.0))
            stored = self.read(key)
            self._require_free(key, holder, stored)
            wanted = self._document(holder, stored)
            check_lease_change(stored.document if stored is not None else None, wanted)
            try:
                register.create(stored.version + 1 if stored is not None else 1, encode_lease(wanted))
            except (ConflictError, CommitUnknownError):
                continue
            return self._lease(LeaseTicket(key, holder, wanted.fencing_token), wanted)
        raise ConflictError(
            "others changed the lease each time", remedy="try again later", lease=str(key), holder=holder
        )

    def resume(self, ticket: LeaseTicket) -> Lease:
        """Work under a lease that another task of the same run took.

        Raises:
            FencedError: It is lost or given back. Stop; trying again cannot help.
            UnavailableError: The store does not answer.
            CorruptionError: The stored document cannot be read.
        """
        stored = self.read(ticket.key)
        # Without a document any content will do: the check below then finds nothing stored, too.
        now = self._clock.now()
        document = stored.document if stored is not None else LeaseDocument(ticket.holder, FIRST_TOKEN, now, now)
        lease = self._lease(ticket, document)
        lease.check()
        return lease

    def read(self, key: JobKey) -> StoredLease | None:
        """Return a lease as it is stored, or None if it was never taken.

        Raises:
            UnavailableError: The store does not answer.
            CorruptionError: The stored document cannot be read.
        """
        register = self._register(key)
        entry = register.latest()
        if entry is None:
            return None
        return StoredLease(key, entry.version, decode_lease(entry.data, register.path(entry.version)))

    def in_other_hands(self, key: JobKey, holder: str) -> StoredLease | None:
        """Return the lease that keeps a holder from taking one; None if it may be taken.

        Args:
            key: What is to be leased.
            holder: Who wants it; the present holder's own name is in nobody's way.

        Raises:
            UnavailableError: The store does not answer.
            CorruptionError: The stored document cannot be read.
        """
        return self._in_the_way(holder, self.read(key))

    def known_keys(self) -> list[JobKey]:
        """Return everything that was ever leased, sorted.

        Raises:
            UnavailableError: The store does not answer.
        """
        return [
            JobKey(job, scope)
            for job in self._store.list_directories(LEASES_DIRECTORY)
            for scope in self._store.list_directories(f"{LEASES_DIRECTORY}/{job}")
        ]

    def directory(self, key: JobKey) -> str:
        """Return where the versions of a lease are."""
        return job_directory(LEASES_DIRECTORY, key.job, key.scope)

    def _require_free(self, key: JobKey, holder: str, stored: StoredLease | None) -> None:
        rival = self._in_the_way(holder, stored)
        if rival is not None:
            raise LeaseHeldError(
                "somebody else holds the lease of this job",
                remedy="let it finish, or try again after the lease ends",
                lease=str(key),
                holder=rival.document.holder,
                expires_at=rival.document.expires_at.isoformat(),
                fencing_token=rival.document.fencing_token,
                wanted_by=holder,
            )

    def _in_the_way(self, holder: str, stored: StoredLease | None) -> StoredLease | None:
        if stored is None or stored.document.holder == holder:
            return None
        margin = timedelta(seconds=self._settings.expiry_margin_s)
        return None if stored.document.is_free(self._clock.now(), margin) else stored

    def _document(self, holder: str, stored: StoredLease | None) -> LeaseDocument:
        now = self._clock.now()
        return LeaseDocument(
            holder=holder,
            fencing_token=stored.document.fencing_token + 1 if stored is not None else FIRST_TOKEN,
            acquired_at=now,
            expires_at=now + timedelta(seconds=self._settings.ttl_s),
            commit_id=self._ids.commit_id().hex(),
        )

    def _lease(self, ticket: LeaseTicket, document: LeaseDocument) -> Lease:
        return Lease(
            self._register(ticket.key),
            ticket,
            document,
            settings=self._settings,
            clock=self._clock,
            ids=self._ids,
        )

    def _register(self, key: JobKey) -> VersionedRegister:
        return VersionedRegister(self._store, self.directory(key), LEASE_SUFFIX)
