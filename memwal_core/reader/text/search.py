"""Full-text search: the newest versions of rows, ranked as a single index over all of them would rank them.

For each word, each source finds the rows that have it by an index. Documents, tokens and document frequencies are
summed over the sources, and every row found is scored again with the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TextIndex
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import SCORE_COLUMN
from memwal_core.native.casting import cast, no_rows
from memwal_core.reader.arguments import require_columns, require_count, require_free, require_words
from memwal_core.reader.explain import explain_text_search
from memwal_core.reader.index_gap.gap import IndexGap
from memwal_core.reader.lookup.lookup import Lookup
from memwal_core.reader.names import WORDS
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.text.bm25 import GlobalScores, SegmentStatistics
from memwal_core.reader.text.every_match import Matches, best_of
from memwal_core.reader.text.segment import TextSegment, tokens_of, words_of
from memwal_core.reader.text.segments import TextSegments
from memwal_core.storage import StoreKind
from memwal_core.storage.address import parse_address
from memwal_core.storage.concurrent import map_concurrently

LOCAL_THREADS = 1
"""Threads cost more in a local index than they save."""
REMOTE_THREADS = 8
"""Concurrent searches of a remote table, each for one word in one source."""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A search for texts that contain any of some words.

    Attributes:
        column: A text column with a full-text index on the base table.
        query: The words, as the index's tokenizer takes them.
        k: Maximum number of rows.
        columns: Columns of the result besides ``_score``; all if None.
        filter_sql: Condition on the rows returned; scores still count all rows. None for all.
    """

    column: str
    query: str
    k: int = 10
    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The best rows of one segment, and their global scores."""

    segment: TextSegment
    ids: npt.NDArray[np.uint64]
    scores: npt.NDArray[np.float64]


class TextColumn:
    """The index and the segments of one text column, which all searches of a view share.

    Raises:
        InvalidRequestError: The column has no full-text index.
    """

    def __init__(self, opened: OpenedTable, column: str) -> None:
        found = opened.text_index(column) if column in opened.target.schema.names else None
        if found is None:
            raise InvalidRequestError(
                "the column has no full-text index",
                remedy="search a column that has an INVERTED index",
                column=column,
                columns=opened.target.schema.names,
            )
        self.index: TextIndex = found
        self.segments = TextSegments(opened, column, found)
        is_local = parse_address(opened.uri).kind is StoreKind.LOCAL
        self.threads = LOCAL_THREADS if is_local else REMOTE_THREADS
        self._made: tuple[TextSegment, ...] | None = None

    def sources(self) -> tuple[TextSegment, ...]:
        """Return the segments, made once; errors as for ``TextSegments.make``."""
        if self._made is None:
            self._made = self.segments.make()
        return self._made


class TextSearch:
    """One full-text search of a view.

    Raises:
        InvalidRequestError: The query does not fit the table.
    """

    def __init__(self, opened: OpenedTable, lookup: Lookup, column: TextColumn, query: TextQuery) -> None:
        _check(query, opened.target.schema.names)
        self._columns = require_columns(query.columns, opened.target.schema)
        self._opened = opened
        self._lookup = lookup
        self._query = query
        self._column = column
        self._plan = opened.plan(query.filter_sql)
        self._words = words_of(query.query, column.index.tokenizer)
        # As in Lance, a word counts as often as the query repeats it.
        self._asked = Counter(tokens_of(query.query, column.index.tokenizer))

    @property
    def plan(self) -> ReadPlan:
        """What the search reads."""
        return self._plan

    def gap(self) -> IndexGap:
        """Return how the column's index lags behind merges, and which flushed MemTables stand in for it."""
        return self._column.segments.gap()

    def explain(self) -> str:
        """Return the plan as text."""
        return explain_text_search(self._plan, self._query.k, self._query.query, self.gap())

    def run(self) -> pa.Table:
        """Return the best rows, best first, with ``_score``; see ``TableView.full_text_search``."""
        sources = self._column.sources()
        found = self._matches(sources)
        total = SegmentStatistics(0, 0, dict.fromkeys(self._words, 0))
        for segment, own in zip(sources, found, strict=True):
            counts = {token: len(each.ids) for token, each in own.items()}
            total = total.plus(SegmentStatistics(segment.documents, segment.tokens, counts))
        scores = GlobalScores(total, self._asked)
        ranked = []
        for segment, own in zip(sources, found, strict=True):
            present = {token: each for token, each in own.items() if len(each.ids)}
            if present:
                ranked.append(self._ranked(segment, present, scores))
        return self._best(ranked)

    def _matches(self, sources: Sequence[TextSegment]) -> list[dict[str, Matches]]:
        """Return for each source the rows with each token; one search per token and source."""
        asked = [(source, word) for source in sources for word in self._words.values()]
        with self._opened.trace.step(WORDS) as counts:
            found = map_concurrently(lambda each: each[0].matches(each[1]), asked, self._column.threads)
            counts.update(segments=len(sources), words=len(self._words), matches=sum(len(each.ids) for each in found))
        every = iter(found)
        return [{token: next(every) for token in self._words} for _ in sources]

    def _ranked(self, segment: TextSegment, found: Mapping[str, Matches], scores: GlobalScores) -> _Ranked:
        local, filter_sql = segment.local(found), self._query.filter_sql
        if filter_sql is not None:
            found = {token: segment.passing(self._words[token], filter_sql, each) for token, each in found.items()}
            found = {token: each for token, each in found.items() if len(each.ids)}
        if not found:
            return _Ranked(segment, np.empty(0, dtype=np.uint64), np.empty(0))
        return _Ranked(segment, *best_of(found, local, segment.lengths, self._query.k, scores))

    def _best(self, ranked: Sequence[_Ranked]) -> pa.Table:
        """Read the best rows: those in the base table together, by row id; the others by key."""
        scores = np.concatenate([np.empty(0), *(each.scores for each in ranked)])
        best = np.argsort(-scores, kind="stable")[: self._query.k]
        owners = np.repeat(np.arange(len(ranked)), [len(each.ids) for each in ranked])[best]
        ids = np.concatenate([np.empty(0, dtype=np.uint64), *(each.ids for each in ranked)])[best]
        in_base, elsewhere = np.empty(0, dtype=np.uint64), [no_rows(self._key_schema())]
        at_base, at_keys = [], []
        for number, each in enumerate(ranked):
            places = np.flatnonzero(owners == number)
            if not len(places):
                continue
            place = each.segment.place(ids[places])
            if place.base_ids is not None:
                in_base = np.concatenate([in_base, place.base_ids])
                at_base.append(places)
            elif place.keys is not None:
                elsewhere.append(place.keys.cast(elsewhere[0].schema))
                at_keys.append(places)
        rows = pa.concat_tables([self._of_base(in_base), self._by_key(pa.concat_tables(elsewhere))])
        order = np.argsort(np.concatenate([np.empty(0, dtype=np.int64), *at_base, *at_keys]))
        stated = self._opened.remembered(("freshness",), lambda: dict(self._opened.plan().freshness.metadata()))
        return (
            rows.take(pa.array(order))
            .append_column(SCORE_COLUMN, pa.array(scores[best], pa.float32()))
            .replace_schema_metadata(stated)
        )

    def _of_base(self, ids: npt.NDArray[np.uint64]) -> pa.Table:
        schema = pa.schema([self._opened.target.schema.field(name) for name in self._columns])
        if not len(ids):
            return no_rows(schema)
        rows = rows_of(self._opened.base, ids, self._columns)
        return pa.Table.from_arrays([cast(rows.column(field.name), field.type) for field in schema], schema=schema)

    def _by_key(self, keys: pa.Table) -> pa.Table:
        found = self._lookup.find(keys, self._columns) if keys.num_rows else self._of_base(np.empty(0, dtype=np.uint64))
        return found.replace_schema_metadata(None)

    def _key_schema(self) -> pa.Schema:
        return pa.schema([self._opened.target.schema.field(name) for name in self._opened.key])


def _check(query: TextQuery, names: Sequence[str]) -> None:
    require_count("k", query.k, 1)
    require_words(query.query)
    require_free(names, SCORE_COLUMN)
    if not query.query.strip():
        raise InvalidRequestError(
            "this full-text search does not fit the table",
            remedy="ask for at least one word",
            column=query.column,
            query=query.query,
        )
