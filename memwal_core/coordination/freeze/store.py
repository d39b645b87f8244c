"""The maintenance record of one table: read it, add freezes, end them."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Self

from memwal_core.clock import Clock
from memwal_core.coordination.freeze.cause import FreezeCause
from memwal_core.coordination.freeze.comparison import Contradiction
from memwal_core.coordination.freeze.document import Freeze, MaintenanceRecord, decode_record, encode_record
from memwal_core.errors import CommitUnknownError, ConflictError, FrozenError, MemwalError
from memwal_core.format.paths import RECORD_DIRECTORY
from memwal_core.ids import IdSource, RegionId
from memwal_core.register import FIRST_VERSION, Entry, VersionedRegister
from memwal_core.storage.protocol import ObjectStore

RECORD_SUFFIX = ".json"
_ATTEMPTS = 20
_TRUST_S = 600.0
"""How long a version that was read is taken for the newest if it has no successor; less than any retention, since
the successors of an older one may be deleted."""
_SHOWN_FOR_S = 30.0

_log = logging.getLogger(__name__)


class FreezeStore:
    """The maintenance record of one table, as a versioned register in ``_mem_wal/_record/``.

    Safe to share between threads. A record that was read before costs one request to read again, unless it changed or
    has a freeze.
    """

    def __init__(self, store: ObjectStore, ids: IdSource, *, clock: Clock) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._register = VersionedRegister(store, RECORD_DIRECTORY, RECORD_SUFFIX)
        self._known: tuple[Entry, MaintenanceRecord] | None = None
        self._read_at = 0.0
        self._lock = Lock()
        self._shown: MaintenanceRecord | None = None
        self._shown_at: float | None = None

    def over(self, store: ObjectStore) -> Self:
        """Return the same for another store of the table, with nothing read yet."""
        return type(self)(store, self._ids, clock=self._clock)

    def load(self, *, again: bool = False) -> MaintenanceRecord | None:
        """Return the record; None if the table was never maintained.

        Args:
            again: Do not rely on what was read before, which is gone if the table was dropped and made again.

        Raises:
            CorruptionError: It cannot be read. Do not act on the table.
        """
        if again:
            self._known = None
        found = self._load()
        return found[1] if found is not None else None

    def active(self) -> tuple[Freeze, ...]:
        """Return the freezes that have not ended; errors as for ``load``."""
        record = self.load()
        return record.active if record is not None else ()

    def vanished(self) -> tuple[RegionId, ...]:
        """Return the regions that a job found gone and no person gave up, as ``recent`` knows them."""
        record = self.recent()
        active = record.active if record is not None else ()
        gone = (each.region_id for each in active if each.cause is FreezeCause.REGION_VANISHED)
        return tuple(each for each in gone if each is not None)

    def recent(self, *, again: bool = False) -> MaintenanceRecord | None:
        """Return the record for readers, as it was at most half a minute ago; None if the table was never maintained.

        Never raises: a read does not depend on the record. One that cannot be read is what it was before, or empty.
        """
        with self._lock:
            if again or self._shown_at is None or self._clock.monotonic() - self._shown_at >= _SHOWN_FOR_S:
                try:
                    self._shown = self.load(again=again)
                except MemwalError as error:
                    self._shown = self._shown or MaintenanceRecord()
                    _log.warning("readers cannot tell whether the table is frozen: %s", error)
                self._shown_at = self._clock.monotonic()
            return self._shown

    def require_thawed(self) -> None:
        """Refuse to act on a frozen table; one that only waits for regions is not.

        Raises:
            FrozenError: It is frozen.
            MemwalError: As for ``load``.
        """
        refuse_frozen(self._store.uri, self.active())

    def add(
        self, cause: FreezeCause, evidence: Mapping[str, object], by: str, *, region_id: RegionId | None = None
    ) -> Freeze:
        """Freeze the table for a cause; one that it is frozen for already stays as it was first found.

        Args:
            cause: What is wrong.
            evidence: The values that prove it, JSON-able.
            by: The job, or the person.
            region_id: The region concerned; None for the whole table.

        Returns:
            The freeze, as it is stored.

        Raises:
            ConflictError: Others changed the record each time. Try again.
            UnavailableError: Storage failed; the table may not be frozen. Try again.
        """
        return self.freeze((Contradiction(cause, evidence, region_id),), by)[0]

    def freeze(self, found: Iterable[Contradiction], by: str) -> tuple[Freeze, ...]:
        """Freeze the table for several contradictions at once; otherwise as ``add``."""
        now = self._clock.now()
        wanted = [Freeze(each.cause, dict(each.evidence), by, now, each.region_id) for each in found]
        stored = {each.subject: each for each in self.update(lambda record: record.frozen(wanted)).active}
        return tuple(stored[each.subject] for each in wanted)

    def update(self, change: Callable[[MaintenanceRecord], MaintenanceRecord]) -> MaintenanceRecord:
        """Change the record by compare-and-swap; an equal record is not written.

        Args:
            change: Derives the new record from the stored one, which may have changed since it was last read.

        Raises:
            ConflictError: Others changed the record each time. Try again.
            CorruptionError: The stored record cannot be read.
        """
        for _ in range(_ATTEMPTS):
            # If what was read before is not the newest any more, the register refuses its successor.
            found = self._known if self._is_fresh() else self._load()
            record = found[1] if found is not None else MaintenanceRecord()
            changed = change(record)
            if changed == record:
                return changed
            entry = Entry(
                found[0].version + 1 if found is not None else FIRST_VERSION,
                encode_record(changed, self._ids.commit_id()),
            )
            try:
                self._register.create(entry.version, entry.data)
            except (ConflictError, CommitUnknownError):
                self._known = None
                continue
            self._remember(entry, changed)
            self._shown_at = None
            return changed
        raise ConflictError(
            "other processes changed the maintenance record in every attempt",
            remedy="try again later",
            table=self._store.uri,
            attempts=_ATTEMPTS,
        )

    def _is_fresh(self) -> bool:
        # A freeze is read anew: it ends with its table, which may have been dropped and made again.
        known, now = self._known, self._clock.monotonic()
        return known is not None and not known[1].active and now - self._read_at < _TRUST_S

    def _load(self) -> tuple[Entry, MaintenanceRecord] | None:
        known = self._known
        if known is not None and self._is_fresh() and not self._register.exists(known[0].version + 1):
            return known
        entry = self._register.latest()
        if entry is None:
            return None
        return self._remember(entry, decode_record(entry.data, self._register.path(entry.version)))

    def _remember(self, entry: Entry, record: MaintenanceRecord) -> tuple[Entry, MaintenanceRecord]:
        self._known, self._read_at = (entry, record), self._clock.monotonic()
        return self._known


def refuse_frozen(uri: str, active: Iterable[Freeze], *, found_now: bool = False) -> None:
    """Raise for a table with active freezes that stop all of it.

    Raises:
        FrozenError: There is at least one.
    """
    freezes = tuple(each for each in active if each.stops_table)
    if not freezes:
        return
    first = freezes[0]
    raise FrozenError(
        f"the table is frozen: {first.cause.facts.summary}",
        remedy=f"run `memwal thaw {shlex.quote(uri)}`, which explains each cause and its choices; "
        f"see {first.cause.facts.runbook}",
        table=uri,
        causes=list(dict.fromkeys(each.cause.value for each in freezes)),
        region_id=str(first.region_id) if first.region_id is not None else None,
        evidence=dict(first.evidence),
        since=first.at.isoformat(),
        found_now=found_now,
    )
