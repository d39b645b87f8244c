"""Texts of one source, found and counted by a full-text index of it: what global BM25 is summed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery

from memwal_core.base_table import TextIndex, translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.reader.bm25 import CorpusStatistics, LocalScores, mean_length, weight_of
from memwal_core.reader.every_match import GlobalScores, IndexedWords, LengthsOf, rows_of
from memwal_core.reader.in_memory import as_dataset

SCORE_COLUMN = "_score"
_NAME = "texts"
_PROBED_ROWS = 256

Passing = Callable[[str], pa.Table]
"""From a condition to the keys of the rows that it lets through."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a query.

    Attributes:
        text: As the caller wrote them.
        by_token: Token -> a word that gives this token; a token itself need not be stable when tokenized again.
    """

    text: str
    by_token: Mapping[str, str]


class Corpus(Protocol):
    """Newest versions of rows, of one source, with an index of their texts."""

    def statistics(self, words: Words) -> CorpusStatistics:
        """Count exactly these rows."""
        ...

    def local(self, exact: CorpusStatistics) -> LocalScores:
        """Return what Lance scores them by, which may count rows that are gone; weights at most too low.

        Args:
            exact: Their ``statistics``.
        """
        ...

    def probed(self, exact: CorpusStatistics, words: Words) -> LocalScores:
        """Return the same with exact weights, told from scores that Lance gives; takes a search per token.

        Args:
            exact: Their ``statistics``.
            words: Of the query.
        """
        ...

    def search(self, words: Words, count: int, filter_sql: str | None) -> pa.Table:
        """Return the ``count`` best rows by Lance's own score: key columns, text and ``_score``, best first."""
        ...

    def best(
        self, counted: tuple[CorpusStatistics, Words], k: int, filter_sql: str | None, scores: GlobalScores
    ) -> tuple[pa.Table, npt.NDArray[np.float64]]:
        """Return the keys of the best rows by their global scores, and the scores; every row is looked at.

        Args:
            counted: Their ``statistics``, and of which words.
            k: How many at most.
            filter_sql: Only rows that fulfil it; None for all.
            scores: What they are scored by.
        """
        ...


@dataclass(frozen=True, slots=True)
class IndexedCorpus:
    """Rows of a dataset that its stored index covers; see ``Corpus``.

    Attributes:
        dataset: The base table, or a flushed MemTable.
        column: The text column.
        key: The primary key.
        index: Its index.
        documents: Documents of the index that are among the rows.
        tokens: Their tokens.
        mask: ``row_addr_allowlist`` or ``row_addr_blocklist`` that leaves the rows.
        lengths: Tokens of documents of the index.
    """

    dataset: lance.LanceDataset
    column: str
    key: tuple[str, ...]
    index: TextIndex
    documents: int
    tokens: int
    mask: Mapping[str, bytes]
    lengths: LengthsOf

    def statistics(self, words: Words) -> CorpusStatistics:
        """Count exactly these rows; see ``Corpus``."""
        counts = {token: self._count(word) for token, word in words.by_token.items()}
        return CorpusStatistics(self.documents, self.tokens, counts)

    def local(self, exact: CorpusStatistics) -> LocalScores:
        """Return what Lance scores by; see ``Corpus``."""
        gone = self.index.documents - self.documents
        counts = {token: found + gone for token, found in exact.frequencies.items() if found}
        return LocalScores.of(CorpusStatistics(self.index.documents, self.index.tokens, {}), counts)

    def probed(self, exact: CorpusStatistics, words: Words) -> LocalScores:
        """Return what Lance scores by, exactly; see ``Corpus``."""
        roughly = self.local(exact)
        if self.index.documents == self.documents:
            return roughly
        weights = {token: self._probed(words.by_token[token], token, low) for token, low in roughly.weights.items()}
        return LocalScores(roughly.mean_length, weights)

    def search(self, words: Words, count: int, filter_sql: str | None) -> pa.Table:
        """Return the best rows; see ``Corpus``."""
        return _search(self.dataset, self.column, self.key, words.text, count, filter=filter_sql, **self._options())

    def best(
        self, counted: tuple[CorpusStatistics, Words], k: int, filter_sql: str | None, scores: GlobalScores
    ) -> tuple[pa.Table, npt.NDArray[np.float64]]:
        """Return the best rows of all; see ``Corpus``."""
        local = self.probed(*counted)
        words = IndexedWords(self.dataset, self.column, counted[1].by_token, local, self.lengths, self._options())
        ids, found = words.best(k, filter_sql, scores)
        return rows_of(self.dataset, ids, self.key), found

    def _count(self, word: str) -> int:
        with translated("count texts with a word", self.dataset.uri):
            return int(
                self.dataset.scanner(full_text_query=MatchQuery(word, self.column), **self._options()).count_rows()
            )

    def _probed(self, word: str, token: str, low: float) -> float:
        hit = _search(self.dataset, self.column, (), word, 1, **self._options())
        tokens = tokens_of(hit.column(self.column)[0].as_py(), self.index.tokenizer) if hit.num_rows else []
        count = tokens.count(token)
        if not count:
            return low
        return max(low, weight_of(hit.column(SCORE_COLUMN)[0].as_py(), count, len(tokens), self.index.mean_length))

    def _options(self) -> dict[str, Any]:
        return {"prefilter": True, "fast_search": True, **self.mask}


class MemoryCorpus:
    """Rows indexed in memory; see ``Corpus``.

    Args:
        rows: Key columns and texts.
        column: The text column.
        key: The primary key.
        tokenizer: Options under Lance's names.
        passing: Judges the rows by a condition.
    """

    def __init__(
        self, rows: pa.Table, column: str, key: tuple[str, ...], tokenizer: Mapping[str, Any], passing: Passing
    ) -> None:
        """Index the texts."""
        self._column = column
        self._key = key
        self._tokenizer = tokenizer
        self._passing = passing
        self._dataset = as_dataset(rows.filter(pc.is_valid(rows.column(column))))
        with translated("index texts in memory", self._dataset.uri):
            self._dataset.create_scalar_index(column, "INVERTED", name=_NAME, **tokenizer)
            statistics: Any = self._dataset.stats.index_stats(_NAME)
        self._documents = sum(int(each["num_docs"]) for each in statistics["indices"])
        self._tokens = self._documents * self._mean_length()

    def statistics(self, words: Words) -> CorpusStatistics:
        """Count exactly these rows; see ``Corpus``."""
        counts = {token: self._count(word) for token, word in words.by_token.items()}
        return CorpusStatistics(self._documents, self._tokens, counts)

    def local(self, exact: CorpusStatistics) -> LocalScores:
        """Return what Lance scores by, which are the same rows; see ``Corpus``."""
        return LocalScores.of(exact, {token: found for token, found in exact.frequencies.items() if found})

    def probed(self, exact: CorpusStatistics, words: Words) -> LocalScores:  # noqa: ARG002 - nothing is to be found out
        """Return the same; see ``Corpus``."""
        return self.local(exact)

    def search(self, words: Words, count: int, filter_sql: str | None) -> pa.Table:
        """Return the best rows; see ``Corpus``."""
        if filter_sql is None:
            return _search(self._dataset, self._column, self._key, words.text, count)
        passing = KeySearch(self._passing(filter_sql), self._key)
        taken = count
        while True:
            found = _search(self._dataset, self._column, self._key, words.text, taken)
            kept = found.filter(pa.array(passing.found(found.select(list(self._key)))))
            if kept.num_rows >= count or found.num_rows < taken:
                return kept.slice(0, count)
            taken *= 4

    def best(
        self, counted: tuple[CorpusStatistics, Words], k: int, filter_sql: str | None, scores: GlobalScores
    ) -> tuple[pa.Table, npt.NDArray[np.float64]]:
        """Return the best rows of all, their texts looked at one by one; see ``Corpus``."""
        found = self.search(counted[1], max(k, self._dataset.count_rows()), filter_sql)
        by_text = scored_by_text(found.column(self._column), self._tokenizer, scores)
        best = np.argsort(-by_text, kind="stable")[:k]
        return found.select(list(self._key)).take(pa.array(best)), by_text[best]

    def _count(self, word: str) -> int:
        with translated("count texts with a word", self._dataset.uri):
            return int(self._dataset.scanner(full_text_query=MatchQuery(word, self._column)).count_rows())

    def _mean_length(self) -> float:
        """Return tokens per document, which Lance does not tell of an index in memory, but a score depends on it."""
        for batch in self._dataset.to_batches(columns=[self._column], batch_size=_PROBED_ROWS):
            for text in batch.column(0).to_pylist():
                words = words_of(text, self._tokenizer)
                if words:
                    # In 32 bits the weight of a word that nearly all texts have is hardly known.
                    return self._explained_by(*min(words.items(), key=lambda each: self._count(each[1])))
        return 0.0

    def _explained_by(self, token: str, word: str) -> float:
        hit = _search(self._dataset, self._column, (), word, 1)
        if not hit.num_rows:
            return 0.0
        tokens = tokens_of(hit.column(self._column)[0].as_py(), self._tokenizer)
        frequency = self._count(word)
        weight = CorpusStatistics(self._documents, 0, {}).weight(frequency)
        return mean_length(hit.column(SCORE_COLUMN)[0].as_py(), weight, tokens.count(token), len(tokens))


def tokens_of(text: str, tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the tokens of a text as Lance counts them."""
    return [token.text for token in lance.tokenize(text, **tokenizer)]


def scored_by_text(
    texts: pa.ChunkedArray, tokenizer: Mapping[str, Any], scores: GlobalScores
) -> npt.NDArray[np.float64]:
    """Return the global scores of rows from their texts, which are tokenized one by one."""
    found = [scores.total.score(tokens_of(text, tokenizer), scores.asked) for text in texts.to_pylist()]
    return np.array(found, dtype=np.float64)


def words_of(text: str, tokenizer: Mapping[str, Any]) -> dict[str, str]:
    """Return token -> a word that gives this token, for all words of a text."""
    words: dict[str, str] = {}
    for word in text.split():
        tokens = tokens_of(word, tokenizer)
        for token in tokens:
            words.setdefault(token, word if len(tokens) == 1 else token)
    return words


def _search(
    dataset: lance.LanceDataset,
    column: str,
    key: tuple[str, ...],
    text: str,
    count: int,
    **options: Any,  # noqa: ANN401
) -> pa.Table:
    with translated("search texts", dataset.uri):
        return dataset.scanner(
            columns=list(dict.fromkeys([*key, column, SCORE_COLUMN])),
            full_text_query=MatchQuery(text, column),
            limit=count,
            **options,
        ).to_table()
