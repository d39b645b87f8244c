"""Plan a garbage collection: every object with its rule or its gate. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from memwal_core.jobs.gc.frozen import Freezes
from memwal_core.jobs.gc.items import Item, Kind, Tally
from memwal_core.jobs.gc.kinds.batch_records import UnnamedBatchRecords
from memwal_core.jobs.gc.kinds.directories import UnrecordedDirectories
from memwal_core.jobs.gc.kinds.flushed import FlushedMemTables
from memwal_core.jobs.gc.kinds.kind import GarbageKind
from memwal_core.jobs.gc.kinds.leftovers import Leftovers
from memwal_core.jobs.gc.kinds.staged_keys import StagedKeyFiles
from memwal_core.jobs.gc.kinds.staged_rows import StagedRowFiles
from memwal_core.jobs.gc.kinds.versions import LeaseVersions, LedgerVersions, ManifestVersions
from memwal_core.jobs.gc.kinds.wal_entries import WalEntries
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState

KINDS: Mapping[Kind, GarbageKind] = MappingProxyType(
    {
        Kind.FLUSHED_MEMTABLE: FlushedMemTables(),
        Kind.DIRECTORY: UnrecordedDirectories(),
        Kind.WAL_ENTRY: WalEntries(),
        Kind.MANIFEST_VERSION: ManifestVersions(),
        Kind.LEFTOVER: Leftovers(),
        Kind.STAGED_KEYS: StagedKeyFiles(),
        Kind.STAGED_ROWS: StagedRowFiles(),
        Kind.BATCH_RECORD: UnnamedBatchRecords(),
        Kind.LEASE_VERSION: LeaseVersions(),
        Kind.LEDGER_VERSION: LedgerVersions(),
    }
)
"""In the order of collection: records, then directories, then the WAL entries that those referred to, then the rest."""


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What a run would do, and why it leaves the rest.

    Attributes:
        version: The version of the base table that it was planned on.
        items: Every object that was examined, in the order of collection.
    """

    table_uri: str
    version: int
    items: tuple[Item, ...]
    freezes: Freezes

    @property
    def free(self) -> tuple[Item, ...]:
        """Items that a run acts on."""
        return tuple(item for item in self.items if item.action is not None)

    def of_kind(self, kind: Kind) -> list[Item]:
        """Return the items of one kind that a run acts on."""
        return [item for item in self.free if item.kind is kind]

    def free_by_kind(self) -> dict[Kind, Tally]:
        """Return what a run acts on, by kind."""
        tallies: dict[Kind, Tally] = {}
        for item in self.free:
            tallies[item.kind] = tallies.get(item.kind, Tally()).plus(item)
        return tallies

    def kept_by_gate(self) -> dict[Kind, dict[str, Tally]]:
        """Return what stays, by kind and gate."""
        kept: dict[Kind, dict[str, Tally]] = {}
        for item in self.items:
            if item.action is None:
                gates = kept.setdefault(item.kind, {})
                gates[item.reason.value] = gates.get(item.reason.value, Tally()).plus(item)
        return kept

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "frozen": {
                "table": self.freezes.table,
                "regions": {str(region_id): reason for region_id, reason in self.freezes.regions.items()},
            },
            "free": _shown(self.free_by_kind()),
            "kept": {
                kind.value: {gate: tally.to_dict() for gate, tally in gates.items()}
                for kind, gates in self.kept_by_gate().items()
            },
            "items": [item.to_dict() for item in self.items],
        }


def plan_gc(state: GcState, policy: Policy) -> GcPlan:
    """Decide about every object of a table."""
    freezes = Freezes.of(state)
    items = [item for kind in KINDS.values() for item in freezes.laid_over(kind.plan(state, policy))]
    return GcPlan(state.table_uri, state.base.version, tuple(items), freezes)


def _shown(tallies: Mapping[Kind, Tally]) -> dict[str, object]:
    return {kind.value: tally.to_dict() for kind, tally in tallies.items()}
