"""Recounting a merge from the version before it and the flushed MemTables, without the merge's code.

All is compared key by key where the rows of a key come together, so no process holds the keys of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table.keys.counts import KeyCounts
from memwal_core.base_table.keys.tally import KeyPiece, counts_of, split_keys, sum_counts, tally
from memwal_core.deduplicate import deduplicate
from memwal_core.flushed.read import MergeTarget, open_generation, read_keys
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.keys import (
    KeyShare,
    nullable_key_schema,
    parts_of_keys,
    read_keys_of,
    share_keys,
    work_of_keys,
)

_BEFORE, _AFTER, _WRITTEN, _DELETED = "before", "after", "written", "deleted"
_ALL = (_BEFORE, _AFTER, _WRITTEN, _DELETED)

Generations = Sequence[tuple[int, str]]
"""(generation, address) of some flushed MemTables of one region, ascending."""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The keys of a version.

    Attributes:
        counts: Rows and distinct keys; NULL counts as a value.
        incomplete: Rows with NULL in their key.
    """

    counts: KeyCounts
    incomplete: int


@dataclass(frozen=True, slots=True)
class Recount:
    """What a merge must have done, and what the table shows.

    Attributes:
        expected_rows: Rows that the version after the merge must have.
        written_keys: Keys whose newest row is not a delete.
        present_keys: Rows of the version after the merge with one of these keys.
        undead_keys: Rows of that version whose key the merge deleted.
    """

    expected_rows: int
    rows: int
    written_keys: int
    present_keys: int
    undead_keys: int


@dataclass(frozen=True, slots=True)
class _RegionShare:
    """What a merge took of some regions."""

    regions: tuple[Generations, ...]
    target: MergeTarget
    schema: pa.Schema
    parts: int


@dataclass(frozen=True, slots=True)
class _PartCount:
    """What one part of the keys adds to a recount."""

    replaced: int
    written: int
    present: int
    undead: int


def count_keys_of(sharing: Sharing, dataset: lance.LanceDataset, key: Sequence[str]) -> KeyFacts:
    """Count the keys of an opened version, complete or not."""
    schema = nullable_key_schema(dataset.schema, key)
    parts = parts_of_keys(work_of_keys(dataset.count_rows(), schema), sharing.settings.part_bytes, sharing.slots)
    shares = share_keys(sharing, dataset, schema, _AFTER, parts)
    found = sharing.exchange("count keys", read_keys_of, shares, _key_facts, parts)
    return KeyFacts(sum_counts([each.counts for each in found], key), sum(each.incomplete for each in found))


def recount(
    sharing: Sharing,
    before: lance.LanceDataset,
    after: lance.LanceDataset,
    regions: Sequence[Generations],
    target: MergeTarget,
) -> Recount:
    """Recount a merge from what it took of each region.

    Raises:
        ObjectNotFoundError: A generation is already collected.
    """
    schema = nullable_key_schema(target.schema, target.key)
    rows = before.count_rows() + after.count_rows()
    parts = parts_of_keys(work_of_keys(rows, schema), sharing.settings.part_bytes, sharing.slots)
    shares: list[KeyShare | _RegionShare] = [
        *share_keys(sharing, before, schema, _BEFORE, parts),
        *share_keys(sharing, after, schema, _AFTER, parts),
        *(_RegionShare(each, target, schema, parts) for each in sharing.divide(regions)),
    ]
    found = sharing.exchange("recount a merge", _read, shares, _part_count, parts)
    written = sum(each.written for each in found)
    return Recount(
        expected_rows=before.count_rows() - sum(each.replaced for each in found) + written,
        rows=after.count_rows(),
        written_keys=written,
        present_keys=sum(each.present for each in found),
        undead_keys=sum(each.undead for each in found),
    )


def _read(context: JobContext, share: KeyShare | _RegionShare) -> Iterator[tuple[int, KeyPiece]]:
    if isinstance(share, KeyShare):
        yield from read_keys_of(context, share)
        return
    options, target = context.base.storage_options, share.target
    for generations in share.regions:
        keyed = [read_keys(number, uri, open_generation(uri, options), target, None) for number, uri in generations]
        if keyed:
            newest = deduplicate(keyed, target.key)
            for origin, rows in ((_WRITTEN, newest.live), (_DELETED, newest.tombstones)):
                yield from split_keys([newest.keys_of(rows).cast(share.schema)], origin, share.parts)


def _part_count(pieces: Iterable[KeyPiece]) -> _PartCount:
    found = tally(pieces, _ALL)
    if found is None:
        return _PartCount(0, 0, 0, 0)
    before, after, written, deleted = (found.rows[origin] for origin in _ALL)
    return _PartCount(
        replaced=int(before[written > 0].sum() + before[deleted > 0].sum()),
        written=int(written.sum()),
        present=int(after[written > 0].sum()),
        undead=int(after[deleted > 0].sum()),
    )


def _key_facts(pieces: Iterable[KeyPiece]) -> KeyFacts:
    found = tally(pieces, (_AFTER,))
    incomplete = 0
    if found is not None:
        lacks = np.zeros(found.keys.num_rows, dtype=bool)
        for column in found.keys.columns:
            lacks |= pc.is_null(column).to_numpy(zero_copy_only=False) if column.null_count else False
        incomplete = int(found.rows[_AFTER][lacks].sum())
    return KeyFacts(counts_of(found, _AFTER), incomplete)
