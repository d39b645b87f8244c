"""Versions of the base table that garbage collection still needs; compaction must not remove them."""

from __future__ import annotations

from collections.abc import Collection

from memwal_core.errors import CorruptionError
from memwal_core.jobs.gc.state import BaseState
from memwal_core.jobs.gc.survey import GcSurveyor


def versions_needed(surveyor: GcSurveyor) -> frozenset[int]:
    """Read which versions garbage collection still needs; a ``CorruptionError`` means that no version may go."""
    base = surveyor.base()
    if base.problem:
        raise CorruptionError(
            "old versions were not removed, because it cannot be read which ones garbage collection needs",
            remedy="run `memwal doctor`, and remove no version until it finds nothing",
            table=surveyor.table.uri,
            problem=base.problem,
        )
    return needed_versions(base, {each.number for each in surveyor.staged()})


def needed_versions(base: BaseState, staged: Collection[int]) -> frozenset[int]:
    """Return the versions that must exist because garbage collection draws conclusions from them.

    - A version that had merged more of some region than the newest one: only it shows that merge progress went
      back, which freezes the region until a person has acted. Without it, generations that may have been collected
      would count as unmerged.
    - A version whose staged manifest still exists: the version proves that the staged file is a leftover. Without
      it, the file could never be collected.

    ``staged`` are the versions that staged manifests were meant for.
    """
    return frozenset(
        each.version
        for each in base.retained
        if each.branch is None
        and (
            each.version in staged
            or any(generation > base.merged(region_id) for region_id, generation in each.merged.items())
        )
    )
