"""Merge progress, version by version: it only ever moves forward, and nothing else forgets it."""

from __future__ import annotations

from collections.abc import Mapping, Set

from memwal_core.base_table import BaseTable
from memwal_core.errors import ObjectNotFoundError
from memwal_core.ids import RegionId


class ProgressWatch:
    """Looks at every version that appears, in order.

    Snapshots, catch-ups and compactions rewrite the MemWAL index as mergers do: one that began
    before a merge and ended after it could bring the older progress back, and the merged rows would
    be merged again over newer ones.
    """

    def __init__(self) -> None:
        """Begin with a table on which nothing is merged."""
        self._version = 0
        self._merged: dict[RegionId, int] = {}

    def problems(self, table: BaseTable, restored: Set[int]) -> list[str]:
        """Return what went wrong in the versions since the last look; those removed since are not looked at.

        Args:
            table: Over a store that does not fail.
            restored: Versions whose progress is that of an older one.
        """
        found: list[str] = []
        newest = table.dataset().version
        for version in range(self._version + 1, newest + 1):
            try:
                details = table.state(version).details
            except ObjectNotFoundError:
                continue
            if details is None:
                self._merged = {}  # Somebody has overwritten the table: nothing is recorded as merged.
                continue
            if version in restored:
                self._merged = dict(details.merged_generations)
            found += self._compare(version, details.merged_generations)
            found += [
                f"version {version}: {name} has caught up to {generation} of {region}, merged is {merged}"
                for name, entry in details.index_catchup.items()
                for region, generation in entry.items()
                if generation > (merged := details.merged_generation(region))
            ]
        self._version = newest
        return found

    def _compare(self, version: int, merged: Mapping[RegionId, int]) -> list[str]:
        went_back = [
            f"version {version}: merge progress of {region} went from {before} to {merged.get(region, 0)}"
            for region, before in self._merged.items()
            if merged.get(region, 0) < before
        ]
        self._merged = {region: max(merged.get(region, 0), self._merged.get(region, 0)) for region in merged}
        return went_back
