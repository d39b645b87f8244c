"""Decide what makes a table whole at its present address: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from memwal_core.coordination.freeze import Contradiction, Freeze, FreezeCause, MaintenanceRecord
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class ExaminedGeneration:
    """A flushed MemTable, as it was found at the present address.

    Attributes:
        recorded: As the region manifest has it.
        addresses: Where it says that its WAL entries are; none if it owns its files.
        is_proven: Whether they are those that were flushed; False if only their sizes and checksums could tell.
        is_due: Whether an address is not the present one.
        problem: Why it cannot be relocated; empty if it can.
    """

    region_id: RegionId
    recorded: FlushedGeneration
    addresses: tuple[str, ...] = ()
    entries: int = 0
    is_proven: bool = True
    is_due: bool = False
    problem: str = ""

    @property
    def subject(self) -> str:
        """How people are told which one it is."""
        return f"region {self.region_id} generation {self.recorded.generation}"

    @property
    def evidence(self) -> str:
        """What was found, for people."""
        if not self.addresses:
            return "owns its files"
        proof = "those that were flushed" if self.is_proven else "whole; it has no digest to compare them with"
        return f"names {', '.join(self.addresses)}; here: {show_count(self.entries, 'entry')}, {proof}"


@dataclass(frozen=True, slots=True)
class RelocationPlan:
    """What a relocation does.

    Attributes:
        known: Where it was before, as recorded.
        decisions: What a person decides first, which is in the way.
        damage: Files that are in the way, which the original may still have.
        is_mixed: Whether the record at an address that it does not know tells of another moment than the table.
    """

    address: str
    known: tuple[str, ...]
    examined: tuple[ExaminedGeneration, ...]
    ends: tuple[Freeze, ...]
    records_address: bool
    decisions: tuple[str, ...]
    damage: tuple[str, ...]
    is_mixed: bool = False

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why nothing is done; empty if nothing is in the way."""
        return (*self.decisions, *self.damage)

    @property
    def rebases(self) -> tuple[ExaminedGeneration, ...]:
        """Flushed MemTables that get the present address."""
        return tuple(each for each in self.examined if each.is_due)

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.rebases or self.ends or self.records_address)


def plan_relocation(
    address: str,
    record: MaintenanceRecord,
    examined: Iterable[ExaminedGeneration],
    contradictions: Iterable[Contradiction],
    damaged_wals: Mapping[RegionId, Mapping[int, str]],
    damaged: Mapping[str, str],
) -> RelocationPlan:
    """Return what makes a table whole.

    Args:
        address: Where the table is now.
        record: What is remembered of it.
        examined: Its flushed MemTables.
        contradictions: Between the record and the table as it is now.
        damaged_wals: Unflushed WAL entries of each region that cannot be replayed, and why.
        damaged: Files of the base table that are missing or damaged, and regions whose manifest cannot be read or that
            lack a generation: what it is -> why.
    """
    found, known, told = tuple(examined), record.memory.addresses, tuple(contradictions)
    ends = tuple(each for each in record.active if each.cause is FreezeCause.ADDRESS_CHANGED)
    damage = (
        *(f"{each}: {problem}" for each, problem in damaged.items()),
        *(f"{each.subject}: {each.problem}" for each in found if each.problem),
        *_damage_of_wals(damaged_wals),
    )
    return RelocationPlan(
        address=address,
        known=known,
        examined=found,
        ends=ends,
        records_address=address not in known,
        decisions=tuple(_decisions(record, told)),
        damage=damage,
        is_mixed=address not in known and any(each.cause is not FreezeCause.ADDRESS_CHANGED for each in told),
    )


def _decisions(record: MaintenanceRecord, contradictions: Iterable[Contradiction]) -> Iterator[str]:
    active = {each.cause for each in record.active}
    more = active | {each.cause for each in contradictions}
    for cause in sorted(more - {FreezeCause.ADDRESS_CHANGED}):
        yield f"{cause.value}: {cause.facts.summary}; decide with `memwal thaw` first, see {cause.facts.runbook}"


def _damage_of_wals(damaged_wals: Mapping[RegionId, Mapping[int, str]]) -> Iterator[str]:
    for region_id, damaged in damaged_wals.items():
        if damaged:
            first, more = min(damaged), f" ({show_count(len(damaged), 'entry')} like it)" if len(damaged) > 1 else ""
            yield f"region {region_id} WAL entry {first}: {damaged[first]}{more}; copy it again, or run `memwal repair`"
