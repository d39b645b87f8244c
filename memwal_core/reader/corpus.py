"""Texts of one source, found and counted by a full-text index of it: what global BM25 is summed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import TextIndex, translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.reader.bm25 import CorpusStatistics, LocalScores, mean_length, weight_of
from memwal_core.reader.by_id import rows_of
from memwal_core.reader.every_match import LengthsOf, Matches, matches_of
from memwal_core.reader.in_memory import as_dataset
from memwal_core.reader.rows import is_among

SCORE_COLUMN = "_score"
_NAME = "texts"
_PROBED_ROWS = 256
_PROBED_WORDS = 32
_INDEXED_ONLY: Mapping[str, Any] = {"prefilter": True, "fast_search": True}

RowIds = npt.NDArray[np.uint64]
Passing = Callable[[str], pa.Table]
"""From a condition to the keys of the rows that it lets through."""
Belongs = Callable[[RowIds], npt.NDArray[np.bool_]]
"""From row ids of a dataset to whether each is a newest version, which only such rows are."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where some rows are to be read; one of both is None.

    Attributes:
        base_ids: Their row ids in the base table.
        keys: Their keys, to look them up.
    """

    base_ids: RowIds | None
    keys: pa.Table | None


PlaceOf = Callable[[RowIds], Place]


class Corpus(Protocol):
    """Newest versions of rows, of one source, with an index of their texts. Safe to use from several threads."""

    @property
    def documents(self) -> float:
        """Rows with a text."""
        ...

    @property
    def tokens(self) -> float:
        """Tokens of all of them."""
        ...

    def matches(self, word: str) -> Matches:
        """Return exactly those of these rows that have a word."""
        ...

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores them by, which may count rows that are gone.

        Args:
            found: Token -> its matches, at least one each.
        """
        ...

    def lengths(self, ids: RowIds) -> npt.NDArray[np.int64]:
        """Return how many tokens rows have; their ids are ascending."""
        ...

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:
        """Return those matches of a word that a condition lets through."""
        ...

    def place(self, ids: RowIds) -> Place:
        """Return where some of these rows are to be read, in the order of the ids."""
        ...


@dataclass(frozen=True, slots=True)
class IndexedCorpus:
    """Rows of a dataset that its stored index covers; see ``Corpus``.

    Attributes:
        dataset: The base table, or a flushed MemTable.
        column: The text column.
        index: Its index.
        documents: Documents of the index that are among the rows.
        tokens: Their tokens.
        is_whole: Whether the dataset still has every document of the index.
        belongs: Which rows of the dataset are meant.
        known_lengths: Tokens of documents of the index; 0 for one that it does not know.
        place_of: Where rows are to be read.
    """

    dataset: lance.LanceDataset
    column: str
    index: TextIndex
    documents: float
    tokens: float
    is_whole: bool
    belongs: Belongs
    known_lengths: LengthsOf
    place_of: PlaceOf

    def matches(self, word: str) -> Matches:
        """Return the rows with a word; see ``Corpus``."""
        found = matches_of(self.dataset, self.column, word, **_INDEXED_ONLY)
        return found.kept(self.belongs(found.ids))

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores by; see ``Corpus``."""
        index = CorpusStatistics(self.index.documents, self.index.tokens, {})
        if self.is_whole:
            counts = {token: each.indexed for token, each in found.items()}
            return LocalScores.of(index, counts)
        # How many deleted documents have a word is not known, but the score of any row tells the weight.
        best = {token: int(np.argmax(each.scores)) for token, each in found.items()}
        ids = np.unique(np.array([each.ids[best[token]] for token, each in found.items()], dtype=np.uint64))
        texts = self._tokens(ids)
        weights = {}
        for token, each in found.items():
            own = texts[int(np.searchsorted(ids, each.ids[best[token]]))]
            count = own.count(token)
            weights[token] = (
                weight_of(each.scores[best[token]], count, len(own), index.mean_length)
                if count
                else index.stored_weight(each.indexed)
            )
        return LocalScores(index.mean_length, weights)

    def lengths(self, ids: RowIds) -> npt.NDArray[np.int64]:
        """Return how many tokens rows have; see ``Corpus``."""
        lengths = self.known_lengths(ids)
        unknown = np.flatnonzero(lengths == 0)
        if len(unknown):
            lengths[unknown] = [len(each) for each in self._tokens(ids[unknown])]
        return lengths

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:
        """Return the matches that a condition lets through; see ``Corpus``."""
        passing = matches_of(self.dataset, self.column, word, filter=filter_sql, **_INDEXED_ONLY)
        return found.kept(is_among(found.ids, np.sort(passing.ids)))

    def place(self, ids: RowIds) -> Place:
        """Return where rows are to be read; see ``Corpus``."""
        return self.place_of(ids)

    def _tokens(self, ids: RowIds) -> list[list[str]]:
        texts = rows_of(self.dataset, ids, (self.column,)).column(0)
        return [tokens_of(text, self.index.tokenizer) for text in texts.to_pylist()]


class MemoryCorpus:
    """Rows indexed in memory; see ``Corpus``. Their ids are their numbers.

    Args:
        rows: Key columns and texts.
        column: The text column.
        key: The primary key.
        tokenizer: Options under Lance's names.
        passing: Judges the rows by a condition.
        base_ids: Row ids in the base table; None if the rows are not there.
    """

    def __init__(
        self,
        rows: pa.Table,
        column: str,
        key: tuple[str, ...],
        tokenizer: Mapping[str, Any],
        passing: Passing,
        base_ids: RowIds | None = None,
    ) -> None:
        """Index the texts."""
        self._column = column
        self._key = key
        self._tokenizer = tokenizer
        self._passing = passing
        is_text = pc.is_valid(rows.column(column))
        texts = rows.filter(is_text)
        self._base_ids = None if base_ids is None else base_ids[is_text.to_numpy()]
        self._keys = texts.select(list(key))
        self._lengths = np.zeros(texts.num_rows, dtype=np.int64)
        self._dataset = as_dataset(texts.select([column]))
        with translated("index texts in memory", self._dataset.uri):
            self._dataset.create_scalar_index(column, "INVERTED", name=_NAME, **tokenizer)
            statistics: Any = self._dataset.stats.index_stats(_NAME)
        self.documents: float = sum(int(each["num_docs"]) for each in statistics["indices"])
        self.tokens: float = self.documents * self._mean_length()

    def matches(self, word: str) -> Matches:
        """Return the rows with a word; see ``Corpus``."""
        return matches_of(self._dataset, self._column, word)

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores by, which are the same rows; see ``Corpus``."""
        own = CorpusStatistics(self.documents, self.tokens, {})
        return LocalScores.of(own, {token: len(each.ids) for token, each in found.items()})

    def lengths(self, ids: RowIds) -> npt.NDArray[np.int64]:
        """Return how many tokens rows have; a text is looked at once. See ``Corpus``."""
        unknown = ids[self._lengths[ids] == 0]
        if len(unknown):
            texts = rows_of(self._dataset, unknown, (self._column,)).column(0).to_pylist()
            self._lengths[unknown] = [len(tokens_of(text, self._tokenizer)) for text in texts]
        return self._lengths[ids]

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:  # noqa: ARG002 - rows are judged by key
        """Return the matches that a condition lets through; see ``Corpus``."""
        passing = KeySearch(self._passing(filter_sql), self._key)
        return found.kept(passing.found(self._keys.take(pa.array(found.ids))))

    def place(self, ids: RowIds) -> Place:
        """Return where rows are to be read; see ``Corpus``."""
        if self._base_ids is None:
            return Place(None, self._keys.take(pa.array(ids)))
        return Place(self._base_ids[ids], None)

    def _mean_length(self) -> float:
        """Return tokens per document, which Lance does not tell of an index in memory, but a score depends on it."""
        for batch in self._dataset.to_batches(columns=[self._column], batch_size=_PROBED_ROWS):
            for text in batch.column(0).to_pylist():
                words = words_of(text, self._tokenizer)
                if words:
                    # In 32 bits the weight of a word that nearly all texts have is hardly known: the rarest of some.
                    found = {token: self.matches(word) for token, word in islice(words.items(), _PROBED_WORDS)}
                    return self._explained_by(*min(found.items(), key=lambda each: len(each[1].ids)))
        return 0.0

    def _explained_by(self, token: str, found: Matches) -> float:
        if not len(found.ids):
            return 0.0
        row = int(np.argmax(found.scores))
        text = rows_of(self._dataset, found.ids[row : row + 1], (self._column,)).column(0)[0].as_py()
        tokens = tokens_of(text, self._tokenizer)
        weight = CorpusStatistics(self.documents, 0, {}).weight(len(found.ids))
        return mean_length(found.scores[row], weight, tokens.count(token), len(tokens))


def tokens_of(text: str, tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the tokens of a text as Lance counts them."""
    return [token.text for token in lance.tokenize(text, **tokenizer)]


def words_of(text: str, tokenizer: Mapping[str, Any]) -> dict[str, str]:
    """Return token -> a word that gives this token, for all words of a text."""
    words: dict[str, str] = {}
    for word in text.split():
        tokens = tokens_of(word, tokenizer)
        for token in tokens:
            words.setdefault(token, word if len(tokens) == 1 else token)
    return words
