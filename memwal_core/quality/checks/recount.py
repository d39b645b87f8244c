"""Recounting a merge from the version before it and the flushed MemTables, without the merge's code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.deduplicate import deduplicate
from memwal_core.flushed.read import MergeTarget, open_generation, read_keys


@dataclass(frozen=True, slots=True)
class Recount:
    """What a merge must have done, and what the table shows.

    Attributes:
        expected_rows: Rows that the version after the merge must have.
        rows: Rows that it has.
        written_keys: Keys whose newest row is not a delete.
        present_keys: Rows of the version after the merge with one of these keys.
        undead_keys: Rows of that version whose key the merge deleted.
    """

    expected_rows: int
    rows: int
    written_keys: int
    present_keys: int
    undead_keys: int


def recount(
    before: lance.LanceDataset,
    after: lance.LanceDataset,
    regions: Iterable[Sequence[tuple[int, str]]],
    target: MergeTarget,
    storage_options: Mapping[str, str],
) -> Recount:
    """Recount a merge; memory holds the keys of the merged generations.

    ``regions`` gives for each region the (generation, address) of what was merged, ascending. A generation that is
    already collected is an ``ObjectNotFoundError``.
    """
    written, deleted = _winners(regions, target, storage_options)
    replaced = _count(before, written, target) + _count(before, deleted, target)
    return Recount(
        expected_rows=before.count_rows() - replaced + written.num_rows,
        rows=after.count_rows(),
        written_keys=written.num_rows,
        present_keys=_count(after, written, target),
        undead_keys=_count(after, deleted, target),
    )


def _winners(
    regions: Iterable[Sequence[tuple[int, str]]], target: MergeTarget, storage_options: Mapping[str, str]
) -> tuple[pa.Table, pa.Table]:
    schema = pa.schema([target.schema.field(name) for name in target.key])
    written, deleted = [schema.empty_table()], [schema.empty_table()]
    for generations in regions:
        keyed = [
            read_keys(number, uri, open_generation(uri, storage_options), target, None) for number, uri in generations
        ]
        if not keyed:
            continue
        newest = deduplicate(keyed, target.key)
        written.append(newest.keys_of(newest.live).cast(schema))
        deleted.append(newest.keys_of(newest.tombstones).cast(schema))
    return pa.concat_tables(written), pa.concat_tables(deleted)


def _count(dataset: lance.LanceDataset, keys: pa.Table, target: MergeTarget) -> int:
    if not keys.num_rows:
        return 0
    search = KeySearch(keys, target.key)
    found = 0
    with translated("read keys", dataset.uri, version=dataset.version):
        for batch in dataset.scanner(columns=list(target.key)).to_batches():
            rows = pa.Table.from_batches([batch]).cast(keys.schema)
            found += int(np.count_nonzero(search.found(rows)))
    return found
