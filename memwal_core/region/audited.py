"""What audits saw: the flushed MemTables that a merge behind the quality gate may take.

State: one object per set of suites below ``_mem_wal/_quality``. The quality checks replace it, the merge only reads
it. May import ``storage``, ``format`` and the top-level modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.format.document import as_moment, as_text, encode_document, parse_document
from memwal_core.format.paths import audited_path
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.region.quarantine import QuarantineStore
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore


@dataclass(frozen=True, slots=True)
class Audited:
    """What the last audit by some suites saw, and what people let pass.

    Attributes:
        at: When that audit ended; None if none is recorded.
        seen: Region -> directory of each flushed MemTable -> why the audit could not read it; empty if it could. Not
            their numbers: a region that begins again counts from 1.
        released: Flushed MemTables that a person released.
    """

    at: datetime | None = None
    seen: Mapping[RegionId, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    released: frozenset[tuple[RegionId, int]] = frozenset()

    def has_seen(self, region_id: RegionId, directory: str) -> bool:
        """Return whether the audit met a flushed MemTable, readable or not."""
        return directory in self.seen.get(region_id, {})

    def unreadable(self, region_id: RegionId, directory: str) -> str:
        """Return why the audit could not read a flushed MemTable; empty if it could, or did not see it."""
        return self.seen.get(region_id, {}).get(directory, "")


class AuditedStore:
    """What audits of one table saw.

    Args:
        store: Of the table.
        suites: What tells the suites of an audit from any others, in hexadecimal digits.
    """

    def __init__(self, store: ObjectStore, suites: str) -> None:
        self._store = store
        self._path = audited_path(suites)

    def load(self) -> Audited:
        """Return what the last audit saw.

        Load it before the quarantine: an audit records what it saw after it has held back what failed. A record that
        cannot be read counts as none: in doubt nothing is merged.
        """
        released = QuarantineStore(self._store).released()
        try:
            document = parse_document(self._store.get(self._path, MAX_NOTE_BYTES))
            seen = {
                parse_region_id(region): {directory: as_text(why) for directory, why in found.items()}
                for region, found in document["seen"].items()
            }
            return Audited(as_moment(document["audited_at"]), seen, released)
        except (ObjectNotFoundError, InvalidRequestError, ValueError, TypeError, KeyError, AttributeError):
            return Audited(released=released)

    def record(self, at: datetime, seen: Mapping[RegionId, Mapping[str, str]]) -> None:
        """Replace what the audit before saw; only after everything that failed is in quarantine."""
        regions = {str(region_id): dict(found) for region_id, found in seen.items()}
        self._store.put(self._path, encode_document({"audited_at": at.isoformat(), "seen": regions}))
