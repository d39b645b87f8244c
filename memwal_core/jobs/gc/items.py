"""What a garbage collection decides about: objects, the rule that frees each, the gate that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from memwal_core.ids import RegionId


class Kind(StrEnum):
    """The kinds of garbage, in the order in which they are collected."""

    FLUSHED_MEMTABLE = "flushed_memtable"
    """Recorded in the region manifest; collecting one removes its record."""
    DIRECTORY = "directory"
    """A flushed MemTable's directory that no manifest records any more, or that none ever recorded."""
    WAL_ENTRY = "wal_entry"
    MANIFEST_VERSION = "manifest_version"
    LEFTOVER = "leftover"
    """Staged manifests and temporary files that a failed commit or write left behind."""
    STAGED_KEYS = "staged_keys"
    """Keys that the processes of a failed merge pass staged for each other."""
    STAGED_ROWS = "staged_rows"
    """Rows of a Spark batch that failed before they were in regions."""
    BATCH_RECORD = "batch_record"
    """Records of a Spark batch write without a name, which is never repeated."""
    LEASE_VERSION = "lease_version"
    LEDGER_VERSION = "ledger_version"
    UNKNOWN = "unknown"
    """Files of unknown form, which are shown and never touched."""


class Action(StrEnum):
    """What a run does with an item."""

    DRAIN = "drain"
    """Remove the record; the directory follows after the grace period."""
    DELETE = "delete"


class FreeingRule(StrEnum):
    """Why an item is free to go."""

    COVERED = "merged, covered by every index, needed by no retained version"
    DRAINED = "removed from the manifest longer than the grace period ago"
    ORPHAN = "never recorded, old, and no flush can record it any more"
    UNREFERENCED = "flushed, old, below the newest entry, in no flushed MemTable"
    SUPERSEDED = "below the retained versions and superseded long ago"
    ABANDONED = "left by a write that ended long ago"


class Gate(StrEnum):
    """Why an item stays."""

    FROZEN = "frozen"
    UNMERGED = "not merged"
    EMPTY_BASE = "an empty base table proves nothing"
    INDEX_BEHIND = "an index has not caught up"
    RETAINED_VERSION = "a retained version needs it"
    OPEN_WRITER = "an open writer of another program may still read it"
    UNEXPECTED_NAME = "its name is not one of a flushed MemTable of this generation"
    GRACE = "in the grace period"
    YOUNG = "too young"
    MAY_BE_RECORDED = "a flush may still record it"
    NOT_FLUSHED = "not flushed"
    FENCE = "the newest entry keeps fencing sound"
    REFERENCED = "a flushed MemTable consists of it"
    UNCLEAR = "what refers to it cannot be read"
    SWITCHED_OFF = "switched off"
    RETENTION = "within the retention"
    UNKNOWN = "unknown, never touched"


_LASTING = frozenset(
    {
        Gate.FROZEN,
        Gate.EMPTY_BASE,
        Gate.INDEX_BEHIND,
        Gate.UNEXPECTED_NAME,
        Gate.MAY_BE_RECORDED,
        Gate.UNCLEAR,
        Gate.SWITCHED_OFF,
    }
)


@dataclass(frozen=True, slots=True)
class Item:
    """One object or directory, and what becomes of it.

    Attributes:
        path: Relative to the table's root.
        number: Generation, WAL id or version; 0 if it has none.
        region_id: None for what belongs to the table.
        action: What a run does; None if a gate holds the item.
        reason: The rule that frees it, or the gate that keeps it.
        age_s: Seconds since it was written; 0 where nobody asks.
        is_pinned: Whether a tag or a branch keeps it, which no retention ends.
    """

    kind: Kind
    path: str
    number: int
    region_id: RegionId | None
    objects: int
    size_bytes: int
    action: Action | None
    reason: FreeingRule | Gate
    evidence: str = ""
    age_s: float = 0.0
    is_pinned: bool = False

    @property
    def stays(self) -> bool:
        """Whether it is kept until somebody acts: time alone frees it never."""
        return self.action is None and (self.reason in _LASTING or self.is_pinned)

    def kept(self, gate: Gate, evidence: str = "") -> Self:
        """Return the item kept by a gate."""
        return replace(self, action=None, reason=gate, evidence=evidence)

    def freed(self, rule: FreeingRule, evidence: str = "", *, action: Action = Action.DELETE) -> Self:
        """Return the item freed by a rule."""
        return replace(self, action=action, reason=rule, evidence=evidence)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "kind": self.kind.value,
            "path": self.path,
            "number": self.number,
            "region_id": None if self.region_id is None else str(self.region_id),
            "objects": self.objects,
            "bytes": self.size_bytes,
            "action": None if self.action is None else self.action.value,
            "reason": self.reason.value,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class Tally:
    """A count of items, of the objects they consist of, and of their bytes."""

    items: int = 0
    objects: int = 0
    size_bytes: int = 0

    def plus(self, item: Item) -> Tally:
        """Return the count with one more item."""
        return Tally(self.items + 1, self.objects + item.objects, self.size_bytes + item.size_bytes)

    def added(self, other: Tally) -> Tally:
        """Return the sum of two counts."""
        return Tally(self.items + other.items, self.objects + other.objects, self.size_bytes + other.size_bytes)

    def to_dict(self) -> dict[str, int]:
        """Return JSON-able values."""
        return {"items": self.items, "objects": self.objects, "bytes": self.size_bytes}
