"""How a read is divided into tasks, and what one task does."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TableReader, translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.reading.read_sizes import PREFETCH_BYTES, rows_at_once
from memwal_core.errors import ObjectNotFoundError
from memwal_core.flushed.read import MergeTarget, kept_rows, open_generation
from memwal_core.format.columns import ROW_ADDRESS
from memwal_core.format.region_manifest.model import BASE_TABLE_GENERATION
from memwal_core.memtable import memtable_schema
from memwal_core.native.casting import no_rows
from memwal_core.reader import GenerationSource, Survey, plan_read
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan.sources import ObservedRegion
from memwal_core.reader.plan.survey import in_one_table
from memwal_core.reader.rows.generation_rows import RowRequest, read_flushed
from memwal_core.reader.scan.prefetch import read_winners
from memwal_core.spark.reading.pinned import PinnedFragment, PinnedRegion, PinnedTable, open_table
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import codec_for_suffix, read_entries

_LOADED_AT_ONCE = 8
"""Generations whose keys are read concurrently."""

_ROW_BITS = 32
_ROW_MASK = np.uint64((1 << _ROW_BITS) - 1)

_Piece = TypeVar("_Piece", PinnedFragment, PinnedRegion)

_known: OrderedDict[tuple[object, ...], KeySearch] = OrderedDict()
"""The search of this process's last read, cached: Spark runs many tasks of one read in one process."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: base fragments, or regions with all their generations."""

    fragments: tuple[PinnedFragment, ...] = ()
    regions: tuple[PinnedRegion, ...] = ()


def divide(pinned: PinnedTable) -> list[Part]:
    """Divide a read into parts: of base fragments, and of whole regions, which are never divided.

    Regions share no keys, so the parts need not be combined afterwards.
    """
    limit = pinned.options.partition_rows
    bases = [Part(fragments=group) for group in _packed(pinned.fragments, limit)]
    regions = [Part(regions=group) for group in _packed(pinned.regions, limit)]
    return [*bases, *regions]


def _packed(pieces: Sequence[_Piece], limit: int) -> Iterator[tuple[_Piece, ...]]:
    """Yield the pieces in groups of about as many rows each, as few as keep to the limit."""
    count = min(len(pieces), math.ceil(sum(each.physical_rows for each in pieces) / limit) or 1)
    groups: list[list[_Piece]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda each: each.physical_rows, reverse=True):
        rows, number = heapq.heappop(lightest)
        groups[number].append(piece)
        heapq.heappush(lightest, (rows + piece.physical_rows, number))
    yield from map(tuple, groups)


class PartReader:
    """Reads parts of a pinned table, in any process.

    A base part reads the keys of all unmerged generations itself and leaves out the base rows that
    have one of them: no process collects keys for the others. Keys beyond ``key_bytes`` are looked up in
    rounds. Memory: ``key_bytes``, one flag per row of the part's fragments if there are several rounds, a
    few batches; for a region its keys and its unflushed rows.
    """

    def __init__(self, pinned: PinnedTable, columns: Sequence[str]) -> None:
        """Open the table; none of its rows is read."""
        self._pinned = pinned
        self._columns = tuple(columns)
        self._table: TableReader = open_table(pinned.options).cached()
        self._cache = ReadCache(self._table.session)
        self._state = self._table.state(pinned.version)
        self._own = tuple(name for name in columns if name in self._state.schema.names)
        self._key = self._state.require_primary_key().columns if pinned.regions else ()
        self._target = MergeTarget.of(self._state, self._key)

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part.

        Raises:
            GenerationGoneError: A flushed MemTable was collected since the read was planned. Load the DataFrame again.
            CorruptionError: Stored state is damaged, or WAL entries were collected since.
            InvalidRequestError: Lance does not accept the filter.
        """
        if part.fragments:
            yield from (self._shown(batch, BASE_TABLE_GENERATION) for batch in self._base(part.fragments))
        for region in part.regions:
            yield from self._region(region)

    # -- base fragments -----------------------------------------------------------------------

    def _base(self, fragments: Sequence[PinnedFragment]) -> Iterator[pa.RecordBatch]:
        dataset = self._table.dataset(self._pinned.version)
        # Without a column, a batch has no length.
        needed = tuple(dict.fromkeys([*self._own, *self._key])) or tuple(self._state.schema.names[:1])
        marks: _Marks | None = None
        for search, is_only in self._rounds():
            if is_only:
                for batch in self._scan(dataset, fragments, needed):
                    found = search.found(pa.Table.from_batches([batch.select(list(self._key))]))
                    yield kept_rows(batch, ~found) if found.any() else batch
                return
            marks = marks or _Marks(fragments)
            for batch in self._scan(dataset, fragments, self._key, with_address=True):
                marks.add(batch, search.found(pa.Table.from_batches([batch])))
        for batch in self._scan(dataset, fragments, needed, with_address=marks is not None):
            yield batch if marks is None else marks.without(batch)

    def _rounds(self) -> Iterator[tuple[KeySearch, bool]]:
        """Yield the keys of all unmerged generations in searches of bounded size, and whether there is only one."""
        regions, limit = self._pinned.regions, self._pinned.options.key_bytes
        name = (self._pinned.options.uri, self._state.version, self._state.timestamp, limit, regions)
        if name in _known:
            yield _known[name], True
            return
        buffered: list[pa.Table] = []
        is_only = True
        for keys in self._keys():
            if buffered and sum(each.nbytes for each in buffered) + keys.nbytes > limit:
                is_only = False
                yield KeySearch(pa.concat_tables(buffered), self._key), False
                buffered = []
            buffered.append(keys)
        if buffered:
            search = KeySearch(pa.concat_tables(buffered), self._key)
            if is_only:
                _known.clear()
                _known[name] = search
            yield search, is_only

    def _keys(self) -> Iterator[pa.Table]:
        """Yield the keys that each unmerged generation writes or deletes."""
        flushed = [source for region in self._pinned.regions for source in self._flushed(region)]
        for start in range(0, len(flushed), _LOADED_AT_ONCE):
            yield from map_concurrently(self._flushed_keys, flushed[start : start + _LOADED_AT_ONCE], _LOADED_AT_ONCE)
        for region in self._pinned.regions:
            rows = self._unflushed(region)
            if rows is not None:
                (source,) = region.observed(rows).unflushed
                yield OpenedTable(self._table, self._survey(region.observed(rows)), self._cache).rows(source).keys

    def _flushed(self, region: PinnedRegion) -> tuple[GenerationSource, ...]:
        return plan_read(self._survey(region.observed(None)), self._table.store.uri_of).regions[0].generations

    def _flushed_keys(self, source: GenerationSource) -> pa.Table:
        try:
            store = self._table.store
            dataset = open_generation(source.path, store.storage_options, within=store)
            return read_flushed(source, dataset, self._target, store).keys
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def _scan(
        self,
        dataset: lance.LanceDataset,
        fragments: Sequence[PinnedFragment],
        columns: Sequence[str],
        *,
        with_address: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        with translated("scan the base table", dataset.uri, version=dataset.version):
            scanner = dataset.scanner(
                columns=list(columns),
                filter=self._pinned.options.filter_sql,
                fragments=fragments_of(dataset, (each.fragment_id for each in fragments)),
                batch_size=rows_at_once(dataset, columns, self._pinned.options.batch_rows),
                with_row_address=with_address,
                io_buffer_size=PREFETCH_BYTES,
            )
            yield from scanner.to_batches()

    # -- regions ------------------------------------------------------------------------------

    def _region(self, region: PinnedRegion) -> Iterator[pa.RecordBatch]:
        survey = self._survey(region.observed(self._unflushed(region)))
        opened = OpenedTable(self._table, survey, self._cache)
        options = self._pinned.options
        request = RowRequest(self._own or self._key, options.filter_sql, options.batch_rows)
        for winners in opened.winners(opened.plan().regions, request):
            for generation, batch in read_winners(winners.generations, request):
                yield self._shown(batch, generation)

    def _survey(self, *regions: ObservedRegion) -> Survey:
        freshness = self._pinned.freshness
        return Survey(
            self._state, regions, freshness.asked, freshness.achieved, freshness.taken, freshness.is_time_travel
        )

    def _unflushed(self, region: PinnedRegion) -> pa.Table | None:
        """Return the unflushed rows of a region; None if the read does not include any."""
        if region.wal is None:
            return None
        codec = codec_for_suffix(region.wal.suffix, {})
        concurrency = self._table.settings.storage.concurrency
        entries = read_entries(self._table.store, region.region_id, codec, region.wal.positions, concurrency)
        rows = [entry.rows for entry in entries if entry.rows.num_rows]
        if not rows:
            return no_rows(memtable_schema(self._target.schema, self._key))
        return in_one_table(rows, region.region_id)

    def _shown(self, batch: pa.RecordBatch, generation: int) -> pa.RecordBatch:
        tag = pa.array(np.full(batch.num_rows, generation, dtype=np.int64))
        arrays = [batch.column(name) if name in self._own else tag for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))


class _Marks:
    """The deletion mask of some fragments, filled over several rounds."""

    def __init__(self, fragments: Sequence[PinnedFragment]) -> None:
        self._flags = {each.fragment_id: np.zeros(each.physical_rows, dtype=bool) for each in fragments}

    def add(self, batch: pa.RecordBatch, found: npt.NDArray[np.bool_]) -> None:
        for fragment, _, rows in _by_fragment(batch.column(ROW_ADDRESS).to_numpy()[found]):
            self._flags[fragment][rows] = True

    def without(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = np.zeros(batch.num_rows, dtype=bool)
        for fragment, places, rows in _by_fragment(batch.column(ROW_ADDRESS).to_numpy()):
            gone[places] = self._flags[fragment][rows]
        return kept_rows(batch, ~gone) if gone.any() else batch


def _by_fragment(
    addresses: npt.NDArray[np.uint64],
) -> Iterator[tuple[int, npt.NDArray[np.bool_], npt.NDArray[np.uint64]]]:
    """Yield fragment id, which of the addresses are in it, and their row numbers there."""
    fragments = addresses >> np.uint64(_ROW_BITS)
    for fragment in np.unique(fragments).tolist():
        places = fragments == fragment
        yield fragment, places, addresses[places] & _ROW_MASK
