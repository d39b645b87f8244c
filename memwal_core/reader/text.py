"""Full-text search: the newest versions of rows, ranked as one index over all of them would.

Each source finds candidates with an index of its own; flushed MemTables and rows in memory, which
have none, get one in memory. Documents, tokens and document frequencies are summed over the sources,
less those of base rows that newer generations supersede, and the candidates are scored again with
the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery

from memwal_core.base_table import TextIndex, translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.errors import InvalidRequestError
from memwal_core.reader.bm25 import CorpusStatistics, mean_length
from memwal_core.reader.by_key import rows_with_keys
from memwal_core.reader.explain import RegionNames, explain_text_search
from memwal_core.reader.in_memory import as_dataset
from memwal_core.reader.lookup import Lookup
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.plan import ReadPlan
from memwal_core.reader.rows import RowRequest
from memwal_core.reader.winners import RegionWinners

SCORE_COLUMN = "_score"
_CANDIDATES = 4
_MIN_CANDIDATES = 100
"""Scores of one source rank a little differently from global ones, so more than ``k`` are taken."""

Keep = Callable[[pa.Table], npt.NDArray[np.bool_]]


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


class TextSearch:
    """One full-text search of a view.

    Args:
        opened: The view.
        lookup: Finds the rows of the best candidates.
        query: What is searched.
    """

    def __init__(self, opened: OpenedTable, lookup: Lookup, query: TextQuery) -> None:
        """Plan the search; no row is read.

        Raises:
            InvalidRequestError: The column has no full-text index, or the query does not fit it.
        """
        self._opened = opened
        self._lookup = lookup
        self._query = query
        self._index = _index(opened, query)
        self._plan = opened.plan(query.filter_sql)
        self._words = _words(query.query, self._index.tokenizer)

    @property
    def plan(self) -> ReadPlan:
        """What the search touches."""
        return self._plan

    def explain(self, names: RegionNames | None = None) -> str:
        """Return the plan as text."""
        return explain_text_search(self._plan, self._query.k, self._query.query, names or {})

    def run(self) -> pa.Table:
        """Return the best rows, best first, with ``_score``; freshness in the metadata.

        Raises:
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
            InvalidRequestError: Lance does not accept the filter.
        """
        # Scores count all rows, so regions without a row of the filter take part, too.
        winners = self._opened.winners(self._opened.plan().regions)
        keys = [region.keys for region in winners if region.keys.num_rows]
        superseded = pa.concat_tables(keys) if keys else None
        total = self._base_statistics(superseded)
        candidates = [self._in_base(superseded)]
        for region in winners:
            statistics, found = self._in_region(region)
            total = total.plus(statistics)
            candidates.append(found)
        return self._best(pa.concat_tables(candidates), total)

    def _base_statistics(self, superseded: pa.Table | None) -> CorpusStatistics:
        base, column = self._opened.base, self._query.column
        with translated("count documents", self._opened.uri):
            documents = int(base.count_rows(f"`{column}` IS NOT NULL"))
        found = CorpusStatistics(documents, documents * self._index.mean_length, self._frequencies(base))
        if superseded is None:
            return found
        old = rows_with_keys(base, superseded, self._opened.key, [column])
        return found.plus(self._statistics(self._indexed(old)), -1)

    def _in_base(self, superseded: pa.Table | None) -> pa.Table:
        search = None if superseded is None else KeySearch(superseded, self._opened.key)

        def keep(rows: pa.Table) -> npt.NDArray[np.bool_]:
            if search is None:
                return np.ones(rows.num_rows, dtype=bool)
            return ~search.found(rows.select(list(self._opened.key)))

        return self._candidates(self._opened.base, keep, self._query.filter_sql)

    def _in_region(self, region: RegionWinners) -> tuple[CorpusStatistics, pa.Table]:
        """Return what a region adds to the corpus, and its candidates."""
        needed = tuple(dict.fromkeys([*self._opened.key, self._query.column]))
        batches = [batch for each in region.generations for batch in each.read(RowRequest(needed))]
        dataset = self._indexed(pa.Table.from_batches(batches) if batches else None)
        if dataset is None:
            return CorpusStatistics(0, 0, {}), self._typed(None)
        keep: Keep = lambda rows: np.ones(rows.num_rows, dtype=bool)  # noqa: E731
        if self._query.filter_sql is not None:
            request = RowRequest(self._opened.key, self._query.filter_sql)
            passing = [batch for each in region.generations for batch in each.read(request)]
            if not passing:
                return self._statistics(dataset), self._typed(None)
            search = KeySearch(pa.Table.from_batches(passing), self._opened.key)
            keep = lambda rows: search.found(rows.select(list(self._opened.key)))  # noqa: E731
        return self._statistics(dataset), self._candidates(dataset, keep, None)

    def _indexed(self, rows: pa.Table | None) -> lance.LanceDataset | None:
        """Index texts in memory with the base table's tokenizer; None if there are none."""
        if rows is None:
            return None
        needed = rows.select(list(dict.fromkeys([*self._opened.key, self._query.column])))
        texts = needed.filter(pc.is_valid(needed.column(self._query.column)))
        if not texts.num_rows:
            return None
        dataset = as_dataset(texts)
        with translated("index texts in memory", dataset.uri):
            dataset.create_scalar_index(self._query.column, "INVERTED", **self._index.tokenizer)
        return dataset

    def _statistics(self, dataset: lance.LanceDataset | None) -> CorpusStatistics:
        """Count an index in memory, which holds exactly the rows of its dataset."""
        if dataset is None:
            return CorpusStatistics(0, 0, {})
        documents = int(dataset.count_rows())
        frequencies = self._frequencies(dataset)
        counted = CorpusStatistics(documents, 0, frequencies)
        # Lance does not tell the number of tokens in memory, but a score follows from it.
        token, frequency, word = self._probe(dataset, frequencies)
        if not token:
            return counted
        with translated("probe an index in memory", dataset.uri):
            hit = dataset.scanner(
                columns=[self._query.column, SCORE_COLUMN],
                full_text_query=MatchQuery(word, self._query.column),
                limit=1,
            ).to_table()
        tokens = self._tokens(hit.column(0)[0].as_py())
        mean = mean_length(hit.column(1)[0].as_py(), counted.weight(frequency), tokens.count(token), len(tokens))
        return CorpusStatistics(documents, documents * mean, frequencies)

    def _probe(self, dataset: lance.LanceDataset, frequencies: Mapping[str, float]) -> tuple[str, float, str]:
        for token, frequency in frequencies.items():
            if frequency:
                return token, frequency, self._words[token]
        # No document has a word of the query: any word of any document will do.
        for batch in dataset.to_batches(columns=[self._query.column], batch_size=256):
            for text in batch.column(0).to_pylist():
                for token, word in _words(text, self._index.tokenizer).items():
                    return token, self._count(dataset, word), word
        return "", 0, ""

    def _frequencies(self, dataset: lance.LanceDataset) -> dict[str, float]:
        return {token: self._count(dataset, word) for token, word in self._words.items()}

    def _count(self, dataset: lance.LanceDataset, word: str) -> int:
        with translated("count texts with a word", dataset.uri):
            return int(dataset.scanner(full_text_query=MatchQuery(word, self._query.column)).count_rows())

    def _candidates(self, dataset: lance.LanceDataset, keep: Keep, filter_sql: str | None) -> pa.Table:
        columns = [*self._opened.key, self._query.column, SCORE_COLUMN]
        count = max(_MIN_CANDIDATES, _CANDIDATES * self._query.k)
        wanted = count
        while True:
            with translated("search texts", dataset.uri):
                found = dataset.scanner(
                    columns=list(dict.fromkeys(columns)),
                    full_text_query=MatchQuery(self._query.query, self._query.column),
                    filter=filter_sql,
                    prefilter=True,
                    limit=count,
                ).to_table()
            kept = found.filter(pa.array(keep(found)))
            if kept.num_rows >= wanted or found.num_rows < count:
                return self._typed(kept)
            count *= _CANDIDATES

    def _typed(self, rows: pa.Table | None) -> pa.Table:
        own = self._opened.target.schema
        schema = pa.schema([own.field(name) for name in dict.fromkeys([*self._opened.key, self._query.column])])
        if rows is None:
            return schema.empty_table()
        return pa.Table.from_arrays([rows.column(field.name).cast(field.type) for field in schema], schema=schema)

    def _best(self, candidates: pa.Table, total: CorpusStatistics) -> pa.Table:
        texts = candidates.column(self._query.column).to_pylist()  # A few times k rows, not the table.
        scores = np.array([total.score(self._tokens(text)) for text in texts], dtype=np.float64)
        best = np.argsort(-scores, kind="stable")[: self._query.k]
        keys = candidates.select(list(self._opened.key)).take(pa.array(best))
        columns = self._query.columns if self._query.columns is not None else self._opened.target.schema.names
        rows = self._lookup.find(keys, columns)
        return rows.append_column(SCORE_COLUMN, pa.array(scores[best], pa.float32()))

    def _tokens(self, text: str) -> list[str]:
        return [token.text for token in lance.tokenize(text, **self._index.tokenizer)]


def _words(text: str, tokenizer: Mapping[str, Any]) -> dict[str, str]:
    """Return token -> a word that gives this token: a token itself need not be stable when tokenized again."""
    words: dict[str, str] = {}
    for word in text.split():
        tokens = [token.text for token in lance.tokenize(word, **tokenizer)]
        for token in tokens:
            words.setdefault(token, word if len(tokens) == 1 else token)
    return words


def _index(opened: OpenedTable, query: TextQuery) -> TextIndex:
    """Return the index that a query needs.

    Raises:
        InvalidRequestError: There is none, or the query does not fit.
    """
    names: Sequence[str] = opened.target.schema.names
    unknown = [name for name in (*(query.columns or ()), query.column) if name not in names]
    found = None if unknown else opened.text_index(query.column)
    if found is None or query.k < 1 or not query.query.strip():
        raise InvalidRequestError(
            "this full-text search does not fit the table",
            remedy="search a column that has an INVERTED index, for at least one word and one row",
            column=query.column,
            unknown=unknown,
            k=query.k,
            query=query.query,
        )
    return found
