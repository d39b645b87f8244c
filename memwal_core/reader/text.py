"""Full-text search: the newest versions of rows, ranked as one index over all of them would.

Each source finds candidates with an index. Documents, tokens and document frequencies are counted in
each and summed, and the candidates are scored again with the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import TextIndex
from memwal_core.errors import InvalidRequestError
from memwal_core.reader.bm25 import CorpusStatistics, LocalScores
from memwal_core.reader.corpora import TextCorpora
from memwal_core.reader.corpus import SCORE_COLUMN, Corpus, Words, scored_by_text, tokens_of, words_of
from memwal_core.reader.every_match import GlobalScores
from memwal_core.reader.explain import RegionNames, explain_text_search
from memwal_core.reader.gap import IndexGap
from memwal_core.reader.lookup import Lookup
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan import ReadPlan

_CANDIDATES = 2
_GROWTH = 4
_ROUNDS = 2
"""How often more candidates are asked for before every row with one of the words is scored."""

_PRECISION = 1e-5
"""Relative error of Lance's scores, which are 32-bit: a row may be missed that is better by less."""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A search for texts that contain any of some words.

    Attributes:
        column: A text column with a full-text index on the base table.
        query: The words.
        k: Rows wanted.
        columns: Columns of the result besides ``_score``; all if None.
        filter_sql: Only rows that fulfil it are returned; scores count all rows. None for all.
    """

    column: str
    query: str
    k: int = 10
    columns: tuple[str, ...] | None = None
    filter_sql: str | None = None


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The best rows of one corpus.

    Attributes:
        keys: Their keys.
        scores: Global scores.
        unseen: No row of the corpus that is not among them has a higher global score.
    """

    keys: pa.Table
    scores: npt.NDArray[np.float64]
    unseen: float


@dataclass(frozen=True, slots=True)
class _Counted:
    """A corpus that has some of the words, and what is known of it."""

    corpus: Corpus
    statistics: CorpusStatistics
    local: LocalScores


class TextColumn:
    """What searches of one text column of a view share: it is read once.

    Args:
        opened: The view.
        column: The column.

    Attributes:
        index: The base table's index of it.
        corpora: Makes the sources.
    """

    def __init__(self, opened: OpenedTable, column: str) -> None:
        """Look at the index; no row is read.

        Raises:
            InvalidRequestError: The column has no full-text index.
        """
        found = opened.text_index(column) if column in opened.target.schema.names else None
        if found is None:
            raise InvalidRequestError(
                "the column cannot be searched for words",
                remedy="search a column that has an INVERTED index",
                column=column,
                columns=opened.target.schema.names,
            )
        self.index: TextIndex = found
        self.corpora = TextCorpora(opened, column, found)
        self._made: tuple[Corpus, ...] | None = None

    def sources(self) -> tuple[Corpus, ...]:
        """Return the sources; errors as for ``TextCorpora.make``."""
        if self._made is None:
            self._made = self.corpora.make()
        return self._made


class TextSearch:
    """One full-text search of a view.

    Args:
        opened: The view.
        lookup: Finds the rows of the best candidates.
        column: The column's sources.
        query: What is searched.
    """

    def __init__(self, opened: OpenedTable, lookup: Lookup, column: TextColumn, query: TextQuery) -> None:
        """Plan the search; no row is read.

        Raises:
            InvalidRequestError: The query does not fit the table.
        """
        _check(query, opened.target.schema.names)
        self._opened = opened
        self._lookup = lookup
        self._query = query
        self._column = column
        self._plan = opened.plan(query.filter_sql)
        self._words = Words(query.query, words_of(query.query, column.index.tokenizer))
        # A word that the query repeats counts as often, as it does in Lance.
        self._asked = Counter(tokens_of(query.query, column.index.tokenizer))

    @property
    def plan(self) -> ReadPlan:
        """What the search touches."""
        return self._plan

    def gap(self) -> IndexGap:
        """Return how the column's index lags behind merges, and which flushed MemTables stand in for it."""
        return self._column.corpora.gap()

    def explain(self, names: RegionNames | None = None) -> str:
        """Return the plan as text."""
        return explain_text_search(self._plan, self._query.k, self._query.query, names or {}, self.gap())

    def run(self) -> pa.Table:
        """Return the best rows, best first, with ``_score``; freshness in the metadata.

        Raises:
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
            InvalidRequestError: Lance does not accept the filter.
        """
        total = CorpusStatistics(0, 0, dict.fromkeys(self._words.by_token, 0.0))
        counted = []
        for corpus in self._column.sources():
            statistics = corpus.statistics(self._words)
            total = total.plus(statistics)
            counted.append((corpus, statistics))
        scores = GlobalScores(total, self._asked)
        corpora = [_Counted(corpus, own, corpus.local(own)) for corpus, own in counted if any(own.frequencies.values())]
        count = _CANDIDATES * self._query.k
        ranked = [self._candidates(each, count, scores) for each in corpora]
        for _ in range(_ROUNDS):
            count *= _GROWTH
            for number in self._open_ended(ranked):
                each = corpora[number]
                exact = replace(each, local=each.corpus.probed(each.statistics, self._words))
                ranked[number] = self._candidates(exact, count, scores)
        for number in self._open_ended(ranked):
            each = corpora[number]
            found = each.corpus.best((each.statistics, self._words), self._query.k, self._query.filter_sql, scores)
            ranked[number] = _Ranked(self._keys(found[0]), found[1], 0.0)
        return self._best(ranked)

    def _open_ended(self, ranked: Sequence[_Ranked]) -> list[int]:
        """Return the corpora that may hold rows which belong into the result and were not given."""
        least = _at_rank([each.scores for each in ranked], self._query.k) * (1 + _PRECISION)
        return [number for number, each in enumerate(ranked) if each.unseen > least]

    def _candidates(self, counted: _Counted, count: int, scores: GlobalScores) -> _Ranked:
        found = counted.corpus.search(self._words, count, self._query.filter_sql)
        by_text = scored_by_text(found.column(self._query.column), self._column.index.tokenizer, scores)
        unseen = 0.0
        if found.num_rows >= count:
            unseen = counted.local.highest(float(found.column(SCORE_COLUMN)[-1].as_py()), scores.total, scores.asked)
        return _Ranked(self._keys(found), by_text, unseen)

    def _keys(self, rows: pa.Table) -> pa.Table:
        schema = pa.schema([self._opened.target.schema.field(name) for name in self._opened.key])
        return pa.Table.from_arrays([rows.column(f.name).cast(f.type) for f in schema], schema=schema)

    def _best(self, ranked: Sequence[_Ranked]) -> pa.Table:
        columns = self._query.columns if self._query.columns is not None else self._opened.target.schema.names
        scores = np.concatenate([np.empty(0), *(each.scores for each in ranked)])
        best = np.argsort(-scores, kind="stable")[: self._query.k]
        schema = pa.schema([self._opened.target.schema.field(name) for name in self._opened.key])
        keys = pa.concat_tables([schema.empty_table(), *(each.keys for each in ranked)]).take(pa.array(best))
        rows = self._lookup.find(keys, columns)
        return rows.append_column(SCORE_COLUMN, pa.array(scores[best], pa.float32()))


def _at_rank(scores: Sequence[npt.NDArray[np.float64]], k: int) -> float:
    """Return the k-th best score of all; 0 if there are fewer."""
    together = np.sort(np.concatenate([np.empty(0), *scores]))
    return float(together[-k]) if len(together) >= k else 0.0


def _check(query: TextQuery, names: Sequence[str]) -> None:
    unknown = [name for name in query.columns or () if name not in names]
    if unknown or query.k < 1 or not query.query.strip():
        raise InvalidRequestError(
            "this full-text search does not fit the table",
            remedy="search for at least one word and one row, and name columns of the table",
            column=query.column,
            unknown=unknown,
            k=query.k,
            query=query.query,
        )
