"""Flushed MemTables in place of base fragments that an index lacks: which rows of them, and which fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.reader.gap import IndexGap
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.winners import WinningRows, find_winners


@dataclass(frozen=True, slots=True)
class Bridge:
    """How a gap is crossed.

    Attributes:
        standing: Merged generations that stand in, with those of their rows that are the newest of their keys.
        left_out: Base fragments all of whose rows these generations, or newer ones, hold.
        keys: Keys of the fragments that are left out.
        scanned: Base fragments that the index lacks and that hold other rows.
    """

    standing: tuple[WinningRows, ...]
    left_out: tuple[int, ...]
    keys: pa.Table
    scanned: tuple[int, ...]


def bridge_gap(opened: OpenedTable, gap: IndexGap) -> Bridge:
    """Find out which base fragments need not be searched because flushed MemTables hold their rows.

    Reads the keys of fragments that the index lacks, which are those of recent merges.

    Raises:
        GenerationGoneError: A flushed MemTable is not there.
        UnavailableError: Storage failed.
    """
    key = list(opened.key)
    schema = pa.schema([opened.target.schema.field(name) for name in key])
    standing: list[WinningRows] = []
    served = [schema.empty_table()]
    for region in opened.plan().regions:
        sources = gap.standing_in.get(region.region_id, ())
        if not sources:
            continue
        newer = len(region.generations)
        rows = [opened.rows(each) for each in (*region.generations, *sources)]
        winners = find_winners(region.region_id, rows, opened.key).generations
        # Keys of newer generations are superseded in the base table, wherever they are in it.
        served.extend(each.rows.keys for each in winners[:newer])
        served.extend(each.rows.keys.take(pa.array(each.live)) for each in winners[newer:])
        standing.extend(each for each in winners[newer:] if len(each.live))
    search = KeySearch(pa.concat_tables(served), key)
    left_out: list[int] = []
    scanned: list[int] = []
    keys = [schema.empty_table()]
    for fragment in opened.unindexed_fragments(gap.index):
        with translated("read keys of unindexed rows", opened.uri):
            own = opened.base.scanner(columns=key, fragments=fragments_of(opened.base, [fragment])).to_table()
        if standing and search.found(own).all():
            left_out.append(fragment)
            keys.append(own.cast(schema))
        else:
            scanned.append(fragment)
    return Bridge(tuple(standing), tuple(left_out), pa.concat_tables(keys), tuple(scanned))


def fragments_of(dataset: lance.LanceDataset, ids: Sequence[int]) -> list[lance.LanceFragment]:
    """Return fragments by id, those that do not exist left out."""
    found = (dataset.get_fragment(each) for each in ids)
    return [fragment for fragment in found if fragment is not None]
