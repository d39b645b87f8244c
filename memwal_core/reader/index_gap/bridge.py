"""Replacing base fragments that an index lacks by flushed MemTables that hold the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.keys.search import KeySearch, positions
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.format.columns import ROW_ID
from memwal_core.native.casting import no_rows
from memwal_core.reader.index_gap.gap import IndexGap
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.rows.winners import WinningRows, find_winners


@dataclass(frozen=True, slots=True)
class StandingRows:
    """Rows of a merged generation, and the row id of the base table's row that each of them replaces."""

    winning: WinningRows
    base_ids: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Bridge:
    """How an index gap is closed. Memory: at most 16 bytes per row of the fragments that are skipped.

    Attributes:
        standing: Merged generations to search instead.
        left_out: Base fragments to skip: merges made them, and these or newer generations hold all their rows.
        scanned: The other base fragments that the index lacks.
    """

    standing: tuple[StandingRows, ...]
    left_out: tuple[int, ...]
    scanned: tuple[int, ...]


def bridge_gap(opened: OpenedTable, gap: IndexGap) -> Bridge:
    """Find the base fragments that a search can skip because flushed MemTables hold their rows.

    Reads the keys of the fragments that the index lacks, which are those of recent merges.
    """
    key = list(opened.key)
    schema = pa.schema([opened.target.schema.field(name) for name in key])
    standing: list[WinningRows] = []
    served = [no_rows(schema)]
    for region in opened.plan().regions:
        sources = gap.standing_in.get(region.region_id, ())
        if not sources:
            continue
        newer = len(region.generations)
        rows = [opened.rows(each) for each in (*region.generations, *sources)]
        winners = find_winners(region.region_id, rows, opened.key).generations
        # Newer generations supersede these keys in every fragment of the base table.
        served.extend(each.rows.keys for each in winners[:newer])
        served.extend(each.rows.keys.take(pa.array(each.live)) for each in winners[newer:])
        standing.extend(each for each in winners[newer:] if len(each.live))
    search = KeySearch(pa.concat_tables(served), key)
    unindexed = opened.unindexed_fragments(gap.index)
    served_rows: dict[int, pa.Table] = {}
    for fragment in unindexed if standing else ():
        with translated("read keys of unindexed rows", opened.uri):
            found = opened.base.scanner(
                columns=key, fragments=fragments_of(opened.base, [fragment]), with_row_id=True
            ).to_table()
        if search.found(found.select(key)).all():
            served_rows[fragment] = found
    # Another program may have given the rows of a merge other values since: it writes them into other fragments.
    left_out: frozenset[int] = opened.merged_fragments(tuple(served_rows)) if served_rows else frozenset()
    skipped = [served_rows[each] for each in unindexed if each in left_out]
    every = pa.concat_tables([no_rows(schema), *(each.select(key).cast(schema) for each in skipped)])
    row_ids = np.concatenate([np.empty(0, np.uint64), *(each.column(ROW_ID).to_numpy() for each in skipped)])
    present = [_present(each, every, row_ids, key) for each in standing]
    return Bridge(
        tuple(each for each in present if len(each.base_ids)),
        tuple(each for each in unindexed if each in left_out),
        tuple(each for each in unindexed if each not in left_out),
    )


def _present(winning: WinningRows, keys: pa.Table, row_ids: npt.NDArray[np.uint64], key: Sequence[str]) -> StandingRows:
    """Keep the rows of a generation that the skipped base fragments hold."""
    places = positions(winning.rows.keys.take(pa.array(winning.live)), keys, key)
    is_there = places.is_valid().to_numpy(zero_copy_only=False)
    return StandingRows(WinningRows(winning.rows, winning.live[is_there]), row_ids[places.drop_null().to_numpy()])
