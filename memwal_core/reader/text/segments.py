"""The segments of a full-text search of one column: together the newest version of every row, each once.

- rows of the base table that its index covers, except those that newer generations supersede;
- flushed MemTables that are merged but not indexed yet, through their own indexes (specification, appendix 4), or else
  the base table's unindexed fragments, indexed in memory;
- unmerged generations, through their own indexes or else indexed in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TextIndex, count_documents, document_lengths, read_document_lengths, translated
from memwal_core.base_table.indexes.inventory import may_filter_by_index, may_have_moved_rows
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.format.columns import ROW_ID
from memwal_core.reader.index_gap.bridge import StandingRows, bridge_gap
from memwal_core.reader.index_gap.gap import IndexGap, plan_gap
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.reader.rows.generation_rows import FlushedRows, RowRequest, is_among
from memwal_core.reader.rows.winners import WinningRows
from memwal_core.reader.text.live_rows import LiveRows
from memwal_core.reader.text.segment import Belongs, IndexedSegment, MemorySegment, Place, PlaceOf, TextSegment

MAX_CACHED_DOCUMENTS = 4 << 20
"""A view caches the document lengths of an index up to this size, 12 bytes per document."""

FEW_TEXTS = 1000
"""In a larger index, the texts of up to this many rows are tokenized; for more rows all lengths are read."""


class TextSegments:
    """Makes the segments of one text column of a view from the base table's index of it."""

    def __init__(self, opened: OpenedTable, column: str, index: TextIndex) -> None:
        self._opened = opened
        self._column = column
        self._index = index
        self._names = list(dict.fromkeys([*opened.key, column]))

    def gap(self) -> IndexGap:
        """Return how the index lags behind merges."""
        return plan_gap(self._opened.plan(), self._index.name, lambda source: self._own_index(source) is not None)

    def make(self) -> tuple[TextSegment, ...]:
        """Make the segments. Reads keys of unmerged and recently merged rows, and texts that no index covers."""
        # Scores count all rows, so regions that the filter excludes take part, too.
        winners = self._opened.winners(self._opened.plan().regions)
        made: list[TextSegment | None] = [self._indexed_base(), *self._merged()]
        rest: list[WinningRows] = []
        for generation in (each for region in winners for each in region.generations if len(each.live)):
            own = self._own_index(generation.rows.source)
            if own is None or not isinstance(generation.rows, FlushedRows):
                rest.append(generation)
            else:
                made.append(self._unmerged(generation.rows, generation.live, own))
        made.append(self._in_memory(rest))
        return tuple(each for each in made if each is not None)

    def _indexed_base(self) -> TextSegment:
        base, mask = self._opened.base, self._opened.mask()

        def belongs(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
            return ~is_among(ids, mask.row_ids)

        documents, tokens = self._index.documents, self._index.tokens
        if not self._is_whole(base, self._index):
            live = self._live_base(mask.blocklist)
            belongs = live.contains
            documents, tokens = count_documents(self._index, belongs)
            if may_have_moved_rows(base):
                documents, tokens = self._with_moved(documents, tokens, live)
        elif len(mask.row_ids):
            documents, tokens = count_documents(self._index, belongs)
        return self._indexed(base, self._index, (documents, tokens), belongs, lambda ids: Place(ids, None))

    def _is_whole(self, dataset: lance.LanceDataset, index: TextIndex) -> bool:
        """Tell whether a dataset still has every document of an index.

        With stable row ids, an index keeps those of deleted rows beyond compactions, and Lance finds them. Compactions
        with a deferred remap leave deleted rows in an index as well.
        """
        if dataset.has_stable_row_ids or may_have_moved_rows(dataset):
            return False
        with translated("read fragment metadata", dataset.uri):
            fragments = fragments_of(dataset, index.fragments)
            return len(fragments) == len(index.fragments) and not any(each.metadata.deletion_file for each in fragments)

    def _with_moved(self, documents: int, tokens: int, live: LiveRows) -> tuple[int, int]:
        """Add the live documents that the index has under the ids that they had before a compaction.

        Which of those are live only Lance can tell, so their tokens are estimated: such an index is rare, and only
        scores depend on it, by about the share of deleted documents.
        """
        fragments = np.array(sorted(self._index.fragments), dtype=np.uint64)
        moved, length = count_documents(self._index, lambda ids: ~is_among(ids >> np.uint64(32), fragments))
        found = min(moved, len(live) - documents)
        return documents + found, tokens + round(found * length / max(1, moved))

    def _live_base(self, blocklist: bytes | None) -> LiveRows:
        """Return the rows of indexed fragments that no newer generation supersedes, one bit each."""
        base = self._opened.base
        fragments = fragments_of(base, sorted(self._index.fragments))

        def ids() -> Iterable[npt.NDArray[np.uint64]]:
            if not fragments:
                return
            scanner = base.scanner(columns=[], with_row_id=True, fragments=fragments, row_addr_blocklist=blocklist)
            for batch in scanner.to_batches():
                yield batch.column(ROW_ID).to_numpy()

        with translated("read the ids of live rows", self._opened.uri):
            return LiveRows(ids())

    def _merged(self) -> Iterable[TextSegment | None]:
        """Yield the segments of base fragments that the index lacks."""
        unindexed = self._opened.unindexed_fragments(self._index.name)
        if not unindexed:
            return
        gap = self.gap()
        scanned: Sequence[int] = unindexed
        if not gap.is_empty:
            bridge = self._opened.remembered(("bridge", gap.index), lambda: bridge_gap(self._opened, gap))
            scanned = bridge.scanned
            for each in bridge.standing:
                own = self._own_index(each.winning.rows.source)
                assert own is not None  # noqa: S101 - only indexed generations stand in
                yield self._standing(each, own)
        if scanned:
            yield self._in_base_memory(scanned)

    def _standing(self, standing: StandingRows, index: TextIndex) -> TextSegment | None:
        rows = standing.winning.rows
        assert isinstance(rows, FlushedRows)  # noqa: S101 - merged generations were flushed
        addresses = rows.addresses(standing.winning.live)

        def place(ids: npt.NDArray[np.uint64]) -> Place:
            return Place(standing.base_ids[np.searchsorted(addresses, ids)], None)

        return self._indexed_generation(rows, addresses, index, place)

    def _unmerged(self, rows: FlushedRows, live: npt.NDArray[np.int64], index: TextIndex) -> TextSegment | None:
        addresses = rows.addresses(live)

        def place(ids: npt.NDArray[np.uint64]) -> Place:
            return Place(None, rows.keys.take(pa.array(live[np.searchsorted(addresses, ids)])))

        return self._indexed_generation(rows, addresses, index, place)

    def _indexed_generation(
        self, rows: FlushedRows, addresses: npt.NDArray[np.uint64], index: TextIndex, place: PlaceOf
    ) -> TextSegment | None:
        if not len(addresses):
            return None

        def belongs(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
            return is_among(ids, addresses)

        counted = count_documents(index, belongs)
        return self._indexed(rows.keyed.dataset, index, counted, belongs, place)

    def _indexed(
        self,
        dataset: lance.LanceDataset,
        index: TextIndex,
        counted: tuple[int, int],
        belongs: Belongs,
        place: PlaceOf,
    ) -> TextSegment:
        lengths = partial(self._lengths, index)
        is_whole = self._is_whole(dataset, index)
        by_index = cache(partial(may_filter_by_index, dataset, index.fragments))
        return IndexedSegment(dataset, self._column, index, *counted, is_whole, belongs, lengths, place, by_index)

    def _lengths(self, index: TextIndex, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return tokens per document; 0 for a few rows of a large index, whose texts are cheaper to tokenize."""
        if index.documents <= MAX_CACHED_DOCUMENTS:
            return self._opened.remembered(("lengths", *index.files), lambda: read_document_lengths(index)).of(ids)
        if len(ids) <= FEW_TEXTS:
            return np.zeros(len(ids), dtype=np.int64)
        return document_lengths(index, ids)

    def _own_index(self, source: GenerationSource) -> TextIndex | None:
        """Return a flushed MemTable's index if it tokenizes like the base table's index of this column."""
        try:
            index = self._opened.generation_text_index(source, self._column)
        except GenerationGoneError:
            return None
        return index if index is not None and index.tokenizer == self._index.tokenizer else None

    def _in_memory(self, generations: Sequence[WinningRows]) -> TextSegment | None:
        rows = _batches(generations, tuple(self._names), None)
        if rows.num_rows == rows.column(self._column).null_count:
            return None
        passing = partial(self._passing_of, generations)
        return MemorySegment(rows, self._column, self._opened.key, self._index.tokenizer, passing)

    def _in_base_memory(self, fragments: Sequence[int]) -> TextSegment | None:
        rows = self._unindexed(fragments, self._names, None)
        if rows.num_rows == rows.column(self._column).null_count:
            return None
        passing = partial(self._unindexed, fragments, self._opened.key)
        ids = rows.column(ROW_ID).to_numpy()
        return MemorySegment(rows, self._column, self._opened.key, self._index.tokenizer, passing, ids)

    def _unindexed(self, fragments: Sequence[int], columns: Sequence[str], filter_sql: str | None) -> pa.Table:
        """Return rows of fragments that no newer generation supersedes, with their row ids."""
        base = self._opened.base
        with translated("read texts that the index lacks", self._opened.uri):
            return base.scanner(
                columns=list(columns),
                filter=filter_sql,
                fragments=fragments_of(base, fragments),
                row_addr_blocklist=self._opened.mask().blocklist,
                with_row_id=True,
            ).to_table()

    def _passing_of(self, generations: Sequence[WinningRows], filter_sql: str) -> pa.Table:
        return _batches(generations, self._opened.key, filter_sql)


def _batches(generations: Sequence[WinningRows], columns: tuple[str, ...], filter_sql: str | None) -> pa.Table:
    request = RowRequest(columns, filter_sql)
    batches = [batch for each in generations for batch in each.read(request)]
    if not batches:
        return pa.table({name: pa.nulls(0) for name in columns})
    return pa.Table.from_batches(batches)
