"""A lease as its holder uses it."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from memwal_core.clock import Clock
from memwal_core.coordination.lease.document import LeaseDocument, check_lease_change, decode_lease, encode_lease
from memwal_core.coordination.lease.ticket import LeaseTicket
from memwal_core.errors import CommitUnknownError, ConflictError, FencedError, MemwalError
from memwal_core.ids import IdSource
from memwal_core.register import VersionedRegister
from memwal_core.settings import LeaseSettings

_log = logging.getLogger(__name__)


class Lease:
    """One holder's lease: the first of two layers that stop a late task from acting.

    ``check`` reads the stored token before a write. Another process may still take over between check and
    write, which the compare-and-swap of the write itself catches. Neither layer asks a clock: an expired lease
    that no other process took is simply renewed, and one that was taken is lost however much time is left on
    it.

    Several threads may share it; a race costs one more renewal at worst. ``known`` is the newest version seen.
    """

    def __init__(
        self,
        register: VersionedRegister,
        ticket: LeaseTicket,
        known: tuple[int, LeaseDocument],
        *,
        settings: LeaseSettings,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self.ticket = ticket
        self._register = register
        self._known = known
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._renewed = self._progressed = clock.monotonic()
        self._warned = False
        self._ending: Path | None = None
        self._remove_ending: Callable[[], object] = lambda: None

    @property
    def document(self) -> LeaseDocument:
        """The lease as this holder last saw it."""
        return self._known[1]

    def prepare_release(self) -> None:
        """Make sure that the lease can be given back on a disk that its job fills up."""
        commit_id = self._ids.commit_id().hex()
        ended = replace(self.document, expires_at=self.document.acquired_at, commit_id=commit_id)
        self._ending = self._register.prepare(encode_lease(ended), commit_id)
        if self._ending is not None:
            self._remove_ending = weakref.finalize(self, self._ending.unlink, missing_ok=True)

    def check(self) -> None:
        """Require that no other process has taken the lease; the guard of every write and deletion.

        A caller has finished a piece of work, so the check counts as progress, and renews when due. After a
        ``FencedError``, stop and write nothing; after any other error, do not write before a check succeeds.
        """
        _, stored = self._stored()
        self._note_progress()
        if self._is_due() or self._clock.now() >= stored.expires_at:
            self.renew()

    def progressed(self) -> None:
        """Note that work was completed (rows read, a file written), and renew if that is due."""
        self._note_progress()
        self.renew_if_due()

    def renew_if_due(self) -> bool:
        """Renew if the last renewal is old enough and the work has not stalled; return whether it was renewed."""
        if not self._is_due():
            return False
        idle = self._clock.monotonic() - self._progressed
        if idle > self._settings.stall_s:
            if not self._warned:
                _log.warning(
                    "lease no longer renewed, because its job makes no progress [lease=%s, idle_s=%.0f]",
                    self.ticket,
                    idle,
                )
            self._warned = True
            return False
        self.renew()
        return True

    def renew(self) -> None:
        """Extend the lease from now on; the token stays."""
        ttl = timedelta(seconds=self._settings.ttl_s)
        for attempt in range(self._settings.max_attempts):
            version, stored = self._stored() if attempt else self._known
            now = self._clock.now()
            end = now + ttl
            # The end of a clock that was set right since says nothing; one before the beginning would be a release.
            if not stored.is_ahead(now, ttl) or end <= stored.acquired_at:
                end = max(stored.expires_at, end)
            if self._write(version, stored, replace(stored, expires_at=end, renewed_at=now)):
                self._renewed = self._clock.monotonic()
                return
        raise ConflictError(
            "the lease changed in every attempt to renew it", remedy="try again", lease=str(self.ticket)
        )

    def release(self) -> bool:
        """Release the lease as well as possible: if that fails, the lease expires by itself.

        Return whether it was released.
        """
        try:
            for attempt in range(self._settings.max_attempts):
                version, stored = self._stored() if attempt else self._known
                if self._write(version, stored, replace(stored, expires_at=stored.acquired_at)):
                    return True
        except MemwalError as error:
            if self._released_as_prepared():
                return True
            _log.warning("lease not released, it will expire [lease=%s]: %s", self.ticket, error)
        finally:
            self._remove_ending()
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release it, whatever happened."""
        self.release()

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._renewed >= self._settings.renew_after_s

    def _note_progress(self) -> None:
        self._progressed = self._clock.monotonic()
        self._warned = False

    def _stored(self) -> tuple[int, LeaseDocument]:
        """Read the newest version; fenced unless it is still this holder's.

        A write needs no such look before it: the version known is the newest one if its successor can be written.
        """
        entry = self._register.latest(self._known[0])
        stored = decode_lease(entry.data, self._register.path(entry.version)) if entry is not None else None
        if entry is None or stored is None or stored.fencing_token != self.ticket.fencing_token or stored.released:
            raise FencedError(
                "the lease of this job is lost",
                remedy="stop without writing; the next run starts from what is stored",
                lease=str(self.ticket.key),
                holder=self.ticket.holder,
                fencing_token=self.ticket.fencing_token,
                stored_holder=stored.holder if stored is not None else None,
                stored_token=stored.fencing_token if stored is not None else None,
                released=stored.released if stored is not None else None,
            )
        self._known = entry.version, stored
        return self._known

    def _released_as_prepared(self) -> bool:
        if self._ending is None:
            return False
        try:
            version, _ = self._stored()
            self._register.create_prepared(version + 1, self._ending)
        except MemwalError:
            return False
        return True

    def _write(self, version: int, stored: LeaseDocument, wanted: LeaseDocument) -> bool:
        wanted = replace(wanted, commit_id=self._ids.commit_id().hex())
        check_lease_change(stored, wanted)
        try:
            self._register.create(version + 1, encode_lease(wanted))
        except (ConflictError, CommitUnknownError):
            return False
        self._known = version + 1, wanted
        return True
