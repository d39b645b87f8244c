"""Decide whether an index may give way to its successor, or what still needs the old one. Pure (IDX-40).

A codebook must not change under MemTables whose indexes were built with it. So a new codebook comes as a second
index under another name: MemTables maintain both, and the old index goes only when nothing needs it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.base_table import IndexCoverage
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.ids import RegionId
from memwal_core.text import show_count

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ReplacementCase:
    """The facts to decide on, all of one version.

    Attributes:
        old: The index that goes; None if it does not exist.
        new: The index that stays; None if it does not exist.
        lacking: Region -> unmerged generations that have something to index but lack the new index.
        readers_moved: Whether the operator confirmed that all readers use the new index.
    """

    old: IndexCoverage | None
    new: IndexCoverage | None
    same_columns: bool
    details: MemWalIndexDetails
    lacking: Mapping[RegionId, tuple[int, ...]]
    readers_moved: bool


def replacement_obstacles(case: ReplacementCase) -> tuple[str, ...]:
    """Return what still prevents the removal of the old index; empty if nothing does."""
    if case.old is None or case.new is None:
        return tuple(
            f"the {which} index does not exist"
            for which, index in (("old", case.old), ("new", case.new))
            if index is None
        )
    if case.old.name == case.new.name:
        return ("an index cannot be its own successor",)
    obstacles = [
        "the indexes cover different columns" if not case.same_columns else "",
        "one of the indexes is a vector index and the other is not" if case.old.is_vector != case.new.is_vector else "",
        f"MemTables do not maintain {case.new.name}" if case.new.name not in case.details.maintained_indexes else "",
        *_uncovered(case.new, case.details),
        *_lacking(case.new.name, case.lacking),
        "it is not confirmed that all readers use the new index" if not case.readers_moved else "",
    ]
    return tuple(obstacle for obstacle in obstacles if obstacle)


def _uncovered(new: IndexCoverage, details: MemWalIndexDetails) -> list[str]:
    if not new.is_trained:
        return [f"{new.name} is not trained: the table lacks {show_count(new.vectors_missing, 'vector')}"]
    caught_up = details.index_catchup.get(new.name, {})
    behind = [
        region for region, merged in sorted(details.merged_generations.items()) if caught_up.get(region, 0) < merged
    ]
    rows = show_count(new.unindexed_rows, "row")
    found = [f"{new.name} lacks {rows} of the base table"] if new.unindexed_fragments else []
    return found + ([f"{new.name} has not caught up with {show_count(len(behind), 'region')}"] if behind else [])


def _lacking(name: str, lacking: Mapping[RegionId, tuple[int, ...]]) -> list[str]:
    generations = [(region, generation) for region, found in sorted(lacking.items()) for generation in found]
    if not generations:
        return []
    shown = ", ".join(f"generation {generation} of region {region}" for region, generation in generations[:_SHOWN])
    more = f" and {len(generations) - _SHOWN} more" if len(generations) > _SHOWN else ""
    return [f"unmerged flushed MemTables lack {name}: {shown}{more}"]
