"""Versions of the base table that garbage collection still needs, for the job that removes versions."""

from __future__ import annotations

from collections.abc import Iterable

from memwal_core.errors import CorruptionError
from memwal_core.maintenance.gc.state import BaseState, NumberedObject
from memwal_core.maintenance.gc.survey import Surveyor


def versions_needed(surveyor: Surveyor) -> frozenset[int]:
    """Read which versions garbage collection would miss.

    Raises:
        CorruptionError: The versions cannot be read, so none may go.
        UnavailableError: Storage failed. Try again.
    """
    base = surveyor.base()
    if base.problem:
        raise CorruptionError(
            "old versions stay, because what garbage collection needs of them cannot be read",
            remedy="run `memwal doctor`; remove no version before it finds nothing",
            table=surveyor.table.uri,
            problem=base.problem,
        )
    return needed_versions(base, surveyor.staged())


def needed_versions(base: BaseState, staged: Iterable[NumberedObject]) -> frozenset[int]:
    """Return the versions that something is concluded from as long as they exist.

    - A version that had merged more of some region than the newest one: it alone tells that merge
      progress went back, which freezes the region until somebody has looked at it. Without it,
      generations that may have been collected would count as not merged yet.
    - A version whose staged manifest is still there: that the version exists proves that the staged
      file is left over. Without it, the file could never be collected.

    Args:
        base: The newest version and all retained ones.
        staged: Staged manifests, numbered by the version that they were meant for.
    """
    numbers = {each.number for each in staged}
    return frozenset(
        each.version
        for each in base.retained
        if each.branch is None
        and (
            each.version in numbers
            or any(generation > base.merged(region_id) for region_id, generation in each.merged.items())
        )
    )
