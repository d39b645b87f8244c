"""One segment of a full-text search: texts of one source, found and counted by an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import TextIndex, translated
from memwal_core.base_table.indexes.text_index import TEXT_KIND
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.rows.generation_rows import is_among
from memwal_core.reader.rows.in_memory import as_dataset
from memwal_core.reader.text.bm25 import LocalScores, SegmentStatistics, mean_length, weight_of
from memwal_core.reader.text.every_match import LengthsOf, Matches, matches_of

_NAME = "texts"
_PROBED_ROWS = 256
_PROBED_WORDS = 32
_PARTS = re.compile(r"[^\W_]+")
"""Of a word that yields several tokens: what lies between punctuation."""
_INDEXED_ONLY: Mapping[str, Any] = {"prefilter": True, "fast_search": True}

Text = str | Sequence[str | None]
"""A value of a text column: a text, or a list of texts."""

RowIds = npt.NDArray[np.uint64]
Passing = Callable[[str], pa.Table]
"""From a condition to the keys of the rows that fulfil it."""
Belongs = Callable[[RowIds], npt.NDArray[np.bool_]]
"""From row ids of a dataset to whether each is one of the newest versions that the segment stands for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read rows: row ids in the base table or keys to look up. Exactly one is set."""

    base_ids: RowIds | None
    keys: pa.Table | None


PlaceOf = Callable[[RowIds], Place]


class TextSegment(Protocol):
    """The newest versions of rows in one source, with an index of their texts. Thread-safe."""

    @property
    def documents(self) -> float:
        """Rows with a text."""
        ...

    @property
    def tokens(self) -> float:
        """Tokens in all of them."""
        ...

    def matches(self, word: str) -> Matches:
        """Return exactly those of these rows that contain a word."""
        ...

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores them by, which may count deleted rows; each token has at least one match."""
        ...

    def lengths(self, ids: RowIds) -> npt.NDArray[np.int64]:
        """Return the tokens per row; ``ids`` ascend."""
        ...

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:
        """Return the matches of a word that fulfil a condition."""
        ...

    def place(self, ids: RowIds) -> Place:
        """Return where to read some of these rows, in the order of ``ids``."""
        ...


@dataclass(frozen=True, slots=True)
class IndexedSegment:
    """Rows of a dataset that its stored index covers; see ``TextSegment``.

    Attributes:
        documents: Documents of the index that are among the rows.
        is_whole: Whether the dataset still has every document of the index.
        belongs: Which rows of the dataset are meant.
        known_lengths: Tokens per row; 0 if unknown, then the text is tokenized.
        may_filter_by_index: As the function of this name; asked for each word of a search.
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
    may_filter_by_index: Callable[[], bool]

    def matches(self, word: str) -> Matches:
        """Return the rows that contain a word; see ``TextSegment``."""
        found = matches_of(self.dataset, self.column, word, **_INDEXED_ONLY)
        return found.kept(self.belongs(found.ids))

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores by; see ``TextSegment``."""
        index = SegmentStatistics(self.index.documents, self.index.tokens, {})
        if self.is_whole:
            counts = {token: each.indexed for token, each in found.items()}
            return LocalScores.of(index, counts)
        # The number of deleted documents with a word is unknown, but the score of any row reveals the weight.
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
        """Return the tokens per row; see ``TextSegment``."""
        lengths = self.known_lengths(ids)
        unknown = np.flatnonzero(lengths == 0)
        if len(unknown):
            lengths[unknown] = [len(each) for each in self._tokens(ids[unknown])]
        return lengths

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:
        """Return the matches that fulfil a condition; see ``TextSegment``."""
        options = {**_INDEXED_ONLY, "filter": filter_sql, "use_scalar_index": self.may_filter_by_index()}
        passing = matches_of(self.dataset, self.column, word, **options)
        return found.kept(is_among(found.ids, np.sort(passing.ids)))

    def place(self, ids: RowIds) -> Place:
        """Return where to read rows; see ``TextSegment``."""
        return self.place_of(ids)

    def _tokens(self, ids: RowIds) -> list[list[str]]:
        texts = rows_of(self.dataset, ids, (self.column,)).column(0)
        return [tokens_of(text, self.index.tokenizer) for text in texts.to_pylist()]


class MemorySegment:
    """Rows indexed in memory; see ``TextSegment``. A row's id is its number among the rows with a text.

    ``rows`` has key columns and texts, ``passing`` filters them, and ``base_ids`` are their row ids in the base table,
    None if they are not in it.
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
            self._dataset.create_scalar_index(column, TEXT_KIND, name=_NAME, **tokenizer)
            statistics: Any = self._dataset.stats.index_stats(_NAME)
        self.documents: float = sum(int(each["num_docs"]) for each in statistics["indices"])
        self.tokens: float = self.documents * self._mean_length()

    def matches(self, word: str) -> Matches:
        """Return the rows that contain a word; see ``TextSegment``."""
        return matches_of(self._dataset, self._column, word)

    def local(self, found: Mapping[str, Matches]) -> LocalScores:
        """Return what Lance scores by; see ``TextSegment``."""
        own = SegmentStatistics(self.documents, self.tokens, {})
        return LocalScores.of(own, {token: len(each.ids) for token, each in found.items()})

    def lengths(self, ids: RowIds) -> npt.NDArray[np.int64]:
        """Return the tokens per row, tokenizing each text once; see ``TextSegment``."""
        unknown = ids[self._lengths[ids] == 0]
        if len(unknown):
            texts = rows_of(self._dataset, unknown, (self._column,)).column(0).to_pylist()
            self._lengths[unknown] = [len(tokens_of(text, self._tokenizer)) for text in texts]
        return self._lengths[ids]

    def passing(self, word: str, filter_sql: str, found: Matches) -> Matches:  # noqa: ARG002 - rows are judged by key
        """Return the matches that fulfil a condition; see ``TextSegment``."""
        passing = KeySearch(self._passing(filter_sql), self._key)
        return found.kept(passing.found(self._keys.take(pa.array(found.ids))))

    def place(self, ids: RowIds) -> Place:
        """Return where to read rows; see ``TextSegment``."""
        if self._base_ids is None:
            return Place(None, self._keys.take(pa.array(ids)))
        return Place(self._base_ids[ids], None)

    def _mean_length(self) -> float:
        """Derive the tokens per document from a score, because Lance does not state them for an index in memory."""
        for batch in self._dataset.to_batches(columns=[self._column], batch_size=_PROBED_ROWS):
            for text in batch.column(0).to_pylist():
                words = words_of(text, self._tokenizer)
                if words:
                    # The 32-bit weight of a word in nearly all texts is too coarse, so use the rarest of some words.
                    found = {token: self.matches(word) for token, word in islice(words.items(), _PROBED_WORDS)}
                    return self._explained_by(*min(found.items(), key=lambda each: len(each[1].ids)))
        return 0.0

    def _explained_by(self, token: str, found: Matches) -> float:
        if not len(found.ids):
            return 0.0
        row = int(np.argmax(found.scores))
        text = rows_of(self._dataset, found.ids[row : row + 1], (self._column,)).column(0)[0].as_py()
        tokens = tokens_of(text, self._tokenizer)
        weight = SegmentStatistics(self.documents, 0, {}).weight(len(found.ids))
        return mean_length(found.scores[row], weight, tokens.count(token), len(tokens))


def tokens_of(text: Text, tokenizer: Mapping[str, Any]) -> list[str]:
    """Return the tokens of a text as Lance counts them."""
    return [token.text for part in _parts_of(text) for token in lance.tokenize(part, **tokenizer)]


def _parts_of(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else [part for part in text if part is not None]


def words_of(text: Text, tokenizer: Mapping[str, Any]) -> dict[str, str]:
    """Return each token of a text -> a part of the text that yields this token alone, or the token where none does.

    A token may yield another one: stemming shortens some words again each time.
    """
    if not isinstance(text, str):
        return {token: word for part in _parts_of(text) for token, word in words_of(part, tokenizer).items()}
    found: dict[str, str] = {}
    for word in text.split():
        own = tokens_of(word, tokenizer)
        parts = [word] if len(own) == 1 else [part for part in _PARTS.findall(word) if part != word]
        for part in parts:
            tokens = own if part is word else tokens_of(part, tokenizer)
            if len(tokens) == 1:
                found.setdefault(tokens[0], part)
    # Some tokenizers make tokens of several words, or of all.
    every = tokens_of(text, tokenizer)
    if len(every) == 1:
        found[every[0]] = text
    return {token: found.get(token, token) for token in every}
