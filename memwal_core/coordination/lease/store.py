"""Take leases, and read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.clock import Clock
from memwal_core.coordination.job_key import JobKey, list_keys
from memwal_core.coordination.lease.document import (
    FIRST_TOKEN,
    LeaseDocument,
    check_lease_change,
    decode_lease,
    encode_lease,
)
from memwal_core.coordination.lease.held import Lease
from memwal_core.coordination.lease.ticket import LeaseTicket
from memwal_core.errors import CommitUnknownError, ConflictError, InvalidRequestError
from memwal_core.format.document import is_name
from memwal_core.format.paths import LEASES_DIRECTORY, job_directory
from memwal_core.ids import IdSource
from memwal_core.register import FIRST_VERSION, VersionedRegister
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import LeaseSettings
from memwal_core.storage.protocol import ObjectStore

LEASE_SUFFIX = ".json"
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


class LeaseHeldError(ConflictError):
    """Another process holds the lease. Do nothing; try again after it ends.

    ``facts`` has ``holder``, ``expires_at`` and ``fencing_token``.
    """


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease as it is stored; ``version`` is that of its register, and ``is_hinted`` whether it is found at once."""

    key: JobKey
    version: int
    document: LeaseDocument
    is_hinted: bool = True


class LeaseStore:
    """All leases of one table, as versioned registers below ``_mem_wal/_leases/``."""

    def __init__(
        self, store: ObjectStore, ids: IdSource, *, settings: LeaseSettings, clock: Clock, rng: Rng | None = None
    ) -> None:
        self._store = store
        self._ids = ids
        self._settings = settings
        self._clock = clock
        self._rng = rng if rng is not None else system_rng()

    def acquire(self, key: JobKey, holder: str, *, before_first: Callable[[], None] = lambda: None) -> Lease:
        """Take a free lease, or raise ``LeaseHeldError``, whose facts say who holds it until when.

        The present holder's own name counts as free: a repeated task takes its lease over with a new token,
        which fences what is left of its first try. So ``holder`` must be unique per run, and the same again
        when a try is repeated. ``before_first`` is called before a lease is written that was never taken.
        """
        if not is_name(holder):
            raise InvalidRequestError("a lease needs a holder", remedy="name the run in UTF-8", holder=holder)
        register = self._register(key)
        for attempt in range(self._settings.max_attempts):
            if attempt:
                longest = min(_FIRST_WAIT_S * 2.0 ** (attempt - 1), _LONGEST_WAIT_S)
                self._clock.sleep(longest * self._rng.uniform(0.5, 1.0))
            stored = self.require_free(key, holder)
            if stored is None:
                before_first()
            wanted = self._document(holder, stored)
            check_lease_change(stored.document if stored is not None else None, wanted)
            version = stored.version + 1 if stored is not None else FIRST_VERSION
            # Its release will be hinted at; a holder that died left that to the next one.
            is_behind = stored is not None and not stored.is_hinted
            lease = self._lease(LeaseTicket(key, holder, wanted.fencing_token), version, wanted)
            lease.prepare_release()
            try:
                register.create(version, encode_lease(wanted), with_hint=is_behind)
            except (ConflictError, CommitUnknownError):
                continue
            return lease
        raise ConflictError(
            "other processes changed the lease in every attempt to take it",
            remedy="try again later",
            lease=str(key),
            holder=holder,
        )

    def resume(self, ticket: LeaseTicket) -> Lease:
        """Continue under a lease that another task of the same run took.

        A ``FencedError`` means that it is lost or released; trying again cannot help.
        """
        stored = self.read(ticket.key)
        # Without a document any content will do: the check below finds nothing stored either.
        now = self._clock.now()
        document = stored.document if stored is not None else LeaseDocument(ticket.holder, FIRST_TOKEN, now, now)
        lease = self._lease(ticket, stored.version if stored is not None else 0, document)
        lease.check()
        return lease

    def read(self, key: JobKey) -> StoredLease | None:
        """Return a lease as it is stored, or None if it was never taken."""
        register = self._register(key)
        entry = register.latest()
        if entry is None:
            return None
        document = decode_lease(entry.data, register.path(entry.version))
        return StoredLease(key, entry.version, document, entry.is_hinted)

    def in_other_hands(self, key: JobKey, holder: str) -> StoredLease | None:
        """Return the lease that prevents a holder from taking one; None if the holder may take it."""
        return self._in_the_way(holder, self.read(key))

    def is_over(self, stored: StoredLease) -> bool:
        """Return whether anybody may take a lease as it is stored: it was released, or it has expired."""
        margin, ttl = (timedelta(seconds=each) for each in (self._settings.expiry_margin_s, self._settings.ttl_s))
        return stored.document.is_free(self._clock.now(), margin, ttl)

    def renewed(self, stored: StoredLease) -> datetime | None:
        """Return when the store got this version, whatever its holder's clock said; None if it is collected."""
        found = self._store.head(self._register(stored.key).path(stored.version))
        return found.modified if found is not None else None

    def known_keys(self) -> list[JobKey]:
        """Return every key that was ever leased, sorted."""
        return list_keys(self._store, LEASES_DIRECTORY)

    def directory(self, key: JobKey) -> str:
        """Return where the versions of a lease are."""
        return job_directory(LEASES_DIRECTORY, key.job, key.scope)

    def require_free(self, key: JobKey, holder: str) -> StoredLease | None:
        """Return a lease that a holder may take, as it is stored; one in other hands raises ``LeaseHeldError``."""
        stored = self.read(key)
        rival = self._in_the_way(holder, stored)
        if rival is not None:
            raise LeaseHeldError(
                "another process holds the lease of this job",
                remedy="let it finish, or try again after the lease ends",
                lease=str(key),
                holder=rival.document.holder,
                expires_at=rival.document.expires_at.isoformat(),
                fencing_token=rival.document.fencing_token,
                wanted_by=holder,
            )
        return stored

    def _in_the_way(self, holder: str, stored: StoredLease | None) -> StoredLease | None:
        if stored is None or stored.document.holder == holder:
            return None
        return None if self.is_over(stored) else stored

    def _document(self, holder: str, stored: StoredLease | None) -> LeaseDocument:
        now = self._clock.now()
        return LeaseDocument(
            holder=holder,
            fencing_token=stored.document.fencing_token + 1 if stored is not None else FIRST_TOKEN,
            acquired_at=now,
            expires_at=now + timedelta(seconds=self._settings.ttl_s),
            commit_id=self._ids.commit_id().hex(),
        )

    def _lease(self, ticket: LeaseTicket, version: int, document: LeaseDocument) -> Lease:
        return Lease(
            self._register(ticket.key),
            ticket,
            (version, document),
            settings=self._settings,
            clock=self._clock,
            ids=self._ids,
        )

    def _register(self, key: JobKey) -> VersionedRegister:
        return VersionedRegister(self._store, self.directory(key), LEASE_SUFFIX)
