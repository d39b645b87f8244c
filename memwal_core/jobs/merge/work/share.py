"""One region's share of a commit, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.ids import RegionId


@dataclass(frozen=True, slots=True)
class MergeShare:
    """What a commit takes on of one region.

    Attributes:
        merged: Progress before.
        through: Progress after.
        rows_read: Rows of the generations, older duplicates included.
        upserts: Rows written.
        tombstones: Keys deleted, whether or not the base table had them.
    """

    region_id: RegionId
    merged: int
    through: int
    rows_read: int
    upserts: int
    tombstones: int
