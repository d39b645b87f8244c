"""Finding the base rows that have one of many keys, and writing what deletes them: many fragments at once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table.commit.row_changes import BaseFragment, DeletionTarget, FragmentChange, packed
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.reading.read_sizes import KEY_ROWS
from memwal_core.base_table.translate import translated
from memwal_core.errors import CorruptionError, MemwalError
from memwal_core.format.columns import ROW_ADDRESS, ROW_NUMBER_BITS, ROW_NUMBER_MASK
from memwal_core.storage.concurrent import map_concurrently

_log = logging.getLogger(__name__)


_SEARCH_ROWS = 1 << 20
"""Rows compared with the keys at once."""

_READ_BYTES = 64 << 20
"""Bytes of keys that Lance reads ahead of the comparison."""

_GROUP_ROWS = 1 << 23
"""Physical rows of the fragments that one scan reads side by side: bounds what is remembered of them."""

_FRAGMENTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class KeyScan:
    """How rows are looked through.

    Attributes:
        key: Primary key columns; without any nothing is found, because no row replaces another.
        condition: SQL that is true for every row that has one of the keys; empty reads the keys of all rows.
        concurrency: Requests at once for the deletion vectors of single fragments.
    """

    key: Sequence[str]
    condition: str = ""
    concurrency: int = 1


def supersede(
    dataset: lance.LanceDataset,
    fragments: Sequence[BaseFragment],
    searches: Iterable[KeySearch],
    scan: KeyScan,
    target: DeletionTarget,
) -> Iterator[FragmentChange]:
    """Find the rows of fragments that have one of the keys of ``searches``, write what deletes them; one change each.

    ``searches`` is iterated anew for each group of fragments. The same call for the same target writes the same
    bytes, so a repeated attempt leaves nothing behind.

    Raises:
        CorruptionError: A fragment does not hold the rows that its description says.
    """
    if not scan.key:
        yield from (FragmentChange(fragment.fragment_id, 0) for fragment in fragments)
        return
    for group, found in _found(dataset, fragments, searches, scan):
        change = partial(_change, dataset, found, target)
        yield from map_concurrently(change, group, scan.concurrency)


def live_rows(dataset: lance.LanceDataset, fragment: BaseFragment) -> npt.NDArray[np.bool_]:
    """Return a flag for each physical row of a fragment: whether it is not deleted. Reads the deletion vector only."""
    live = np.zeros(fragment.physical_rows, dtype=bool)
    owner = dataset.get_fragment(fragment.fragment_id)
    with translated("read row addresses", dataset.uri, version=dataset.version, fragment=fragment.fragment_id):
        scanner = dataset.scanner(
            columns=[], with_row_address=True, fragments=[] if owner is None else [owner], batch_size=KEY_ROWS
        )
        for batch in scanner.to_batches():
            live[(batch.column(ROW_ADDRESS).to_numpy() & ROW_NUMBER_MASK).astype(np.int64)] = True
    return live


@dataclass(frozen=True, slots=True)
class _Found:
    """Addresses of rows that have one of the keys, ascending, and the number of each one's key.

    Attributes:
        seen: Fragment -> its rows that were read; None if not all were to be read.
    """

    addresses: npt.NDArray[np.uint64]
    places: npt.NDArray[np.int64]
    seen: dict[int, int] | None

    def of(self, fragment_id: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        first = np.uint64(fragment_id) << ROW_NUMBER_BITS
        low = np.searchsorted(self.addresses, first, side="left")
        high = np.searchsorted(self.addresses, first | ROW_NUMBER_MASK, side="right")
        return (self.addresses[low:high] & ROW_NUMBER_MASK).astype(np.int64), self.places[low:high]


def _found(
    dataset: lance.LanceDataset, fragments: Sequence[BaseFragment], searches: Iterable[KeySearch], scan: KeyScan
) -> Iterator[tuple[Sequence[BaseFragment], _Found]]:
    """Find rows, fragments by fragments; an index that fails costs a scan."""
    if scan.condition:
        # A condition leaves few rows, but asks the index of the whole table each time.
        try:
            found = _find(dataset, fragments, searches, scan)
        except MemwalError as error:
            _log.warning("an index on the key failed, all keys are read [table=%s, reason=%s]", dataset.uri, error)
        else:
            yield fragments, found
            return
    everything = replace(scan, condition="")
    for group in _groups(fragments):
        yield group, _find(dataset, group, searches, everything)


def _groups(fragments: Sequence[BaseFragment]) -> Iterator[list[BaseFragment]]:
    group: list[BaseFragment] = []
    rows = 0
    for fragment in fragments:
        if group and rows + fragment.physical_rows > _GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(fragment)
        rows += fragment.physical_rows
    if group:
        yield group


def _find(
    dataset: lance.LanceDataset, fragments: Sequence[BaseFragment], searches: Iterable[KeySearch], scan: KeyScan
) -> _Found:
    addresses: list[npt.NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    places: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    seen: dict[int, int] = {}
    searched = 0
    for search in searches:
        seen = {}
        for rows, numbers in _keyed_rows(dataset, fragments, scan):
            for owner, count in zip(*np.unique(numbers >> ROW_NUMBER_BITS, return_counts=True), strict=True):
                seen[int(owner)] = seen.get(int(owner), 0) + int(count)
            found = search.found(rows)
            if found.any():
                addresses.append(numbers[found])
                places.append(searched + search.places(rows.filter(pa.array(found))))
        searched += len(search)
    together = np.concatenate(addresses)
    order = np.argsort(together, kind="stable")
    return _Found(together[order], np.concatenate(places)[order], None if scan.condition else seen)


def _change(
    dataset: lance.LanceDataset, found: _Found, target: DeletionTarget, fragment: BaseFragment
) -> FragmentChange:
    rows, places = found.of(fragment.fragment_id)
    if not len(rows):
        return FragmentChange(fragment.fragment_id, 0)
    live = live_rows(dataset, fragment)
    counts = {int(np.count_nonzero(live))}
    if found.seen is not None:
        counts.add(found.seen[fragment.fragment_id])
    if counts != {fragment.live_rows}:
        raise CorruptionError(
            "a fragment does not hold as many rows as the table says",
            remedy="stop all jobs of this table and run `memwal doctor`",
            table=dataset.uri,
            version=dataset.version,
            fragment=fragment.fragment_id,
            expected=fragment.live_rows,
            found=sorted(counts),
        )
    gone = np.zeros(fragment.physical_rows, dtype=bool)
    gone[rows] = True
    return replace(target.remove(dataset.version, fragment, live=live, gone=gone), matched=packed(places))


def _keyed_rows(
    dataset: lance.LanceDataset, fragments: Sequence[BaseFragment], scan: KeyScan
) -> Iterator[tuple[pa.Table, npt.NDArray[np.uint64]]]:
    """Yield live rows' keys and addresses, many rows at a time, in any order."""
    with translated("read keys", dataset.uri, version=dataset.version):
        scanner = dataset.scanner(
            columns=list(scan.key),
            with_row_address=True,
            fragments=fragments_of(dataset, (each.fragment_id for each in fragments)),
            filter=scan.condition or None,
            use_scalar_index=bool(scan.condition),
            batch_size=KEY_ROWS,
            fragment_readahead=_FRAGMENTS_AT_ONCE,
            io_buffer_size=_READ_BYTES,
            scan_in_order=False,
        )
        buffered: list[pa.RecordBatch] = []
        size = 0
        for batch in scanner.to_batches():
            buffered.append(batch)
            size += batch.num_rows
            if size >= _SEARCH_ROWS:
                yield _numbered(buffered)
                buffered, size = [], 0
        if buffered:
            yield _numbered(buffered)


def _numbered(batches: list[pa.RecordBatch]) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
    rows = pa.Table.from_batches(batches)
    return rows, rows.column(ROW_ADDRESS).to_numpy()
