"""Old versions of region manifests, leases, ledgers and records: superseded, and far enough below the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memwal_core.format.paths import RECORD_DIRECTORY
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState, NumberedObject

_KEPT_REGISTER_VERSIONS = 1
"""Below the newest: a process that reads the newest while the next is written still finds it."""


class ManifestVersions:
    """Deletes old manifest versions of regions, oldest first, after moving the hint to the newest."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every manifest version."""
        return [
            item
            for region in state.regions
            for item in plan_versions(Kind.MANIFEST_VERSION, region.versions, region.region_id, policy)
        ]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete, region by region."""
        by_region: dict[RegionId, list[Item]] = {}
        for item in items:
            if item.region_id is not None:
                by_region.setdefault(item.region_id, []).append(item)
        deleter.each(list(by_region.items()), lambda pair: deleter.delete_manifest_versions(*pair))


class LeaseVersions:
    """Deletes old versions of job leases; the newest, which carries the fencing token, stays."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every lease version."""
        keep = _Keep(policy, policy.gc.manifest_retention, policy.gc.register_min_age_s)
        return [item for register in state.leases for item in _plan(Kind.LEASE_VERSION, register.versions, None, keep)]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete, lease by lease."""
        _collect_registers(items, deleter)


class LedgerVersions:
    """Deletes old versions of ledgers and of the maintenance record; the newest holds everything that is remembered."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every version of a ledger or of the record."""
        return [
            item
            for register in state.ledgers
            for item in _plan(
                Kind.LEDGER_VERSION,
                register.versions,
                None,
                _Keep(policy, _KEPT_REGISTER_VERSIONS, _register_age_s(register.directory, policy)),
            )
        ]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete, ledger by ledger."""
        _collect_registers(items, deleter)


@dataclass(frozen=True, slots=True)
class _Keep:
    """How many versions below the newest stay, and for how long after they were superseded."""

    policy: Policy
    versions: int
    age_s: float


def _register_age_s(directory: str, policy: Policy) -> float:
    # The record has freezes: whoever read it before, and stalled, must not write at a position that was collected.
    is_record = directory == RECORD_DIRECTORY or directory.startswith(f"{RECORD_DIRECTORY}/")
    return policy.gc.manifest_min_age_s if is_record else policy.gc.register_min_age_s


def _collect_registers(items: Sequence[Item], deleter: Deleter) -> None:
    by_directory: dict[str, list[Item]] = {}
    for item in items:
        by_directory.setdefault(item.path.rpartition("/")[0], []).append(item)
    deleter.each(list(by_directory.values()), deleter.delete_register_versions)


def plan_versions(
    kind: Kind, versions: Sequence[NumberedObject], region_id: RegionId | None, policy: Policy
) -> list[Item]:
    """Return an item for each version of one document.

    A version is free if it lies below the retained ones and was superseded long ago. The free ones are a
    prefix, because readers rely on the rest being consecutive.
    """
    return _plan(kind, versions, region_id, _Keep(policy, policy.gc.manifest_retention, policy.gc.manifest_min_age_s))


def _plan(kind: Kind, versions: Sequence[NumberedObject], region_id: RegionId | None, keep: _Keep) -> list[Item]:
    if not versions:
        return []
    keep_from = versions[-1].number - keep.versions
    items = []
    is_young = False
    for version, successor in pairwise([*versions, versions[-1]]):
        item = Item(
            kind, version.info.path, version.number, region_id, 1, version.info.size_bytes, None, Gate.RETENTION
        )
        since = keep.policy.age_s(successor.info.modified)
        if version.number >= keep_from:
            items.append(item.kept(Gate.RETENTION, f"versions from {keep_from} are kept" if keep_from > 1 else ""))
        elif is_young or since < keep.age_s:
            is_young = True
            items.append(item.kept(Gate.YOUNG, f"superseded {since:.0f} s ago"))
        else:
            items.append(item.freed(FreeingRule.SUPERSEDED, f"superseded {since:.0f} s ago"))
    return items
