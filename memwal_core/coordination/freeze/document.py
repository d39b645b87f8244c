"""The maintenance record as a value and as bytes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from memwal_core.coordination.freeze.cause import Choice, FreezeCause, FreezeScope
from memwal_core.coordination.freeze.memory import Memory, SeenRegion, SeenTable
from memwal_core.errors import ConflictError, CorruptionError, InvalidRequestError
from memwal_core.format.document import as_moment, as_number, as_text, encode_document, parse_document
from memwal_core.ids import RegionId, parse_region_id

_ENDED_KEPT = 50


@dataclass(frozen=True, slots=True)
class FreezeEnd:
    """How a person ended a freeze.

    Attributes:
        at: When, in UTC.
        reason: In their words; may be empty.
    """

    choice: Choice
    by: str
    at: datetime
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"choice": self.choice.value, "by": self.by, "at": _text(self.at), "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Freeze:
    """One freeze of a table.

    Attributes:
        at: When, in UTC.
        region_id: The region concerned; None for the whole table.
        ended: How it ended; None while the table is frozen by it.
    """

    cause: FreezeCause
    evidence: Mapping[str, object]
    by: str
    at: datetime
    region_id: RegionId | None = None
    ended: FreezeEnd | None = None

    @property
    def subject(self) -> tuple[FreezeCause, RegionId | None]:
        """What makes it the same freeze when it is found again."""
        return self.cause, self.region_id

    @property
    def stops_table(self) -> bool:
        """Whether no job may act on the table; otherwise only the region waits for a person."""
        return self.cause.facts.scope is FreezeScope.TABLE

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "cause": self.cause.value,
            "region_id": str(self.region_id) if self.region_id is not None else None,
            "scope": self.cause.facts.scope.value,
            "evidence": dict(self.evidence),
            "by": self.by,
            "at": _text(self.at),
            "ended": self.ended.to_dict() if self.ended is not None else None,
        }


@dataclass(frozen=True, slots=True)
class MaintenanceRecord:
    """What is remembered of a table, and its freezes, the oldest first."""

    memory: Memory = field(default_factory=Memory)
    freezes: tuple[Freeze, ...] = ()

    @property
    def active(self) -> tuple[Freeze, ...]:
        """The freezes that have not ended."""
        return tuple(each for each in self.freezes if each.ended is None)

    def frozen(self, found: Iterable[Freeze]) -> MaintenanceRecord:
        """Return the record with more freezes; what is frozen already stays as it was first found."""
        known = {each.subject for each in self.active}
        new = tuple(each for each in found if each.subject not in known)
        return replace(self, freezes=(*self.freezes, *new)) if new else self

    def thawed(self, ends: Iterable[Freeze], end: FreezeEnd) -> MaintenanceRecord:
        """Return the record with some freezes ended; of those that ended, only the newest are kept.

        Raises:
            ConflictError: Another decision ended one of them; what was frozen for the same cause since is another
                freeze, which this decision was not about.
        """
        ended = {(each.subject, each.at): each.ended for each in self.freezes}
        wanted = {(each.subject, each.at) for each in ends}
        # One that has this very end was stored by a call that heard nothing of it.
        if not all(each in ended and ended[each] in (None, end) for each in wanted):
            raise ConflictError(
                "another decision came first, and this one was about a freeze that has ended",
                remedy="run `memwal thaw` without a choice, which shows what is frozen now",
            )
        freezes = [
            replace(each, ended=end) if each.ended is None and (each.subject, each.at) in wanted else each
            for each in self.freezes
        ]
        over = [each for each in freezes if each.ended is not None][-_ENDED_KEPT:]
        return replace(self, freezes=(*over, *(each for each in freezes if each.ended is None)))


def encode_record(record: MaintenanceRecord, commit_id: bytes) -> bytes:
    """Return the bytes of one version; ``commit_id`` keeps two processes' equal changes apart."""
    memory = record.memory
    document = {
        "commit_id": commit_id.hex(),
        "addresses": list(memory.addresses),
        "table": _table_to_dict(memory.table),
        "progress": {str(region_id): merged for region_id, merged in sorted(memory.progress.items())},
        "regions": {str(region_id): _region_to_dict(seen) for region_id, seen in sorted(memory.regions.items())},
        "absent": [str(region_id) for region_id in sorted(memory.absent)],
        "freezes": [each.to_dict() for each in record.freezes],
    }
    return encode_document(document)


def decode_record(data: bytes, path: str) -> MaintenanceRecord:
    """Read one version; ``path`` is for the error.

    Raises:
        CorruptionError: It cannot be read. What it forbade is unknown, so no job may act.
    """
    try:
        found = parse_document(data)
        memory = Memory(
            addresses=tuple(as_text(each) for each in found["addresses"]),
            table=_table_from_dict(found["table"]),
            progress={parse_region_id(name): as_number(merged) for name, merged in found["progress"].items()},
            regions={parse_region_id(name): _region_from_dict(each) for name, each in found["regions"].items()},
            absent=frozenset(parse_region_id(name) for name in found["absent"]),
        )
        return MaintenanceRecord(memory, tuple(_freeze_from_dict(each) for each in found["freezes"]))
    except (ValueError, KeyError, TypeError, AttributeError, InvalidRequestError) as error:
        raise CorruptionError(
            "the maintenance record of the table cannot be read",
            remedy="follow docs/runbooks/record-unreadable.md; no job acts until then",
            path=path,
            problem=str(error),
        ) from error


def _table_to_dict(seen: SeenTable | None) -> dict[str, object] | None:
    if seen is None:
        return None
    index_id = str(seen.index_id) if seen.index_id is not None else None
    return {"version": seen.version, "timestamp": seen.timestamp.isoformat(), "index_id": index_id}


def _table_from_dict(found: Any) -> SeenTable | None:  # noqa: ANN401 - parsed JSON
    if found is None:
        return None
    index_id = uuid.UUID(found["index_id"]) if found["index_id"] is not None else None
    return SeenTable(as_number(found["version"], at_least=1), as_moment(found["timestamp"]), index_id)


def _region_to_dict(seen: SeenRegion) -> dict[str, object]:
    return {
        "version": seen.version,
        "digest": seen.digest,
        "current_generation": seen.current_generation,
        "generations": {str(number): path for number, path in sorted(seen.generations.items())},
    }


def _region_from_dict(found: Any) -> SeenRegion:  # noqa: ANN401 - parsed JSON
    return SeenRegion(
        as_number(found["version"], at_least=1),
        as_text(found["digest"]),
        as_number(found["current_generation"]),
        MappingProxyType({as_number(int(each)): as_text(path) for each, path in found["generations"].items()}),
    )


def _freeze_from_dict(found: Any) -> Freeze:  # noqa: ANN401 - parsed JSON
    region = found["region_id"]
    return Freeze(
        cause=FreezeCause(found["cause"]),
        evidence=MappingProxyType(dict(found["evidence"])),
        by=as_text(found["by"]),
        at=as_moment(found["at"]),
        region_id=parse_region_id(region) if region is not None else None,
        ended=_end_from_dict(found["ended"]),
    )


def _end_from_dict(found: Any) -> FreezeEnd | None:  # noqa: ANN401 - parsed JSON
    if found is None:
        return None
    return FreezeEnd(Choice(found["choice"]), as_text(found["by"]), as_moment(found["at"]), as_text(found["reason"]))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
