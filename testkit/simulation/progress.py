"""Merge progress, version by version: it only ever moves forward, and nothing else forgets it."""

from __future__ import annotations

from collections.abc import Mapping, Set

from memwal_core.ids import RegionId
from testkit.simulation.view import PlainView


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

    def problems(self, view: PlainView, restored: Set[int]) -> list[str]:
        """Return what went wrong in the versions since the last look; those removed since are not looked at.

        Args:
            view: Of the table as it is now.
            restored: Versions whose progress is that of an older one.
        """
        found: list[str] = []
        versions = view.versions()
        for version in versions:
            if version <= self._version:
                continue
            details = view.details(version)
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
        self._version = max(self._version, versions[-1])
        return found

    def _compare(self, version: int, merged: Mapping[RegionId, int]) -> list[str]:
        went_back = [
            f"version {version}: merge progress of {region} went from {before} to {merged.get(region, 0)}"
            for region, before in self._merged.items()
            if merged.get(region, 0) < before
        ]
        self._merged = {region: max(merged.get(region, 0), self._merged.get(region, 0)) for region in merged}
        return went_back
