"""BM25 as Lance computes it, over the statistics of several corpora together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_K1 = 1.2
_B = 0.75
_LIMIT = _K1 + 1
"""What a token's share of a score stays below, however often a document has it."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """What BM25 must know of a corpus.

    Attributes:
        documents: Documents with a text.
        tokens: Tokens of all of them.
        frequencies: Token -> documents that contain it, for the tokens of a query.
    """

    documents: float
    tokens: float
    frequencies: Mapping[str, float]

    @property
    def mean_length(self) -> float:
        """Tokens per document; 1 without tokens, which scores nothing."""
        return self.tokens / self.documents if self.documents > 0 and self.tokens > 0 else 1.0

    def plus(self, other: CorpusStatistics, sign: int = 1) -> CorpusStatistics:
        """Return the statistics of both corpora together, or of this one without the other (sign -1)."""
        tokens = {*self.frequencies, *other.frequencies}
        return CorpusStatistics(
            self.documents + sign * other.documents,
            self.tokens + sign * other.tokens,
            {each: self.frequencies.get(each, 0) + sign * other.frequencies.get(each, 0) for each in tokens},
        )

    def weight(self, frequency: float) -> float:
        """Return how much a token says that so many documents contain."""
        return math.log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))

    def stored_weight(self, frequency: int) -> float:
        """Return the same as Lance computes it, in 32 bits: of a word that nearly all texts have little is left."""
        documents, having, half = np.float32(self.documents), np.float32(frequency), np.float32(0.5)
        return float(np.log((documents - having + half) / (having + half) + np.float32(1)))


@dataclass(frozen=True, slots=True)
class GlobalScores:
    """What rows are to be scored by.

    Attributes:
        total: Of all corpora.
        asked: How often the query names each token.
    """

    total: CorpusStatistics
    asked: Mapping[str, int]

    def weight(self, token: str) -> float:
        """Return how much a token adds to the score of a document, times its share."""
        return self.asked.get(token, 1) * self.total.weight(self.total.frequencies[token])


@dataclass(frozen=True, slots=True)
class LocalScores:
    """What Lance scores the documents of one corpus by.

    Attributes:
        mean_length: Tokens per document that it reckons with.
        weights: Token -> its weight; only tokens that some document has.
    """

    mean_length: float
    weights: Mapping[str, float]

    @classmethod
    def of(cls, corpus: CorpusStatistics, frequencies: Mapping[str, int]) -> LocalScores:
        """Return the scores of a corpus.

        Args:
            corpus: Its documents and tokens.
            frequencies: Token -> documents that contain it.
        """
        return cls(corpus.mean_length, {token: corpus.stored_weight(df) for token, df in frequencies.items()})

    def shares(self, token: str, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the shares of a token in documents that Lance gave these scores for the token alone.

        Where the weight is lost in rounding, because all of many million documents have the token, scores
        tell nothing: then each counts as a document of mean length that has it once.
        """
        weight = self.weights[token]
        return scores / weight if weight > 0 else np.ones(len(scores))

    def stretch(self, total: CorpusStatistics) -> tuple[float, float]:
        """Return by which factors shares shrink and grow at most that are reckoned with another mean length.

        Args:
            total: Has the other mean length.
        """
        ratio = total.mean_length / self.mean_length
        return min(1.0, ratio), max(1.0, ratio)

    def moved(
        self, shares: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64], total: CorpusStatistics
    ) -> npt.NDArray[np.float64]:
        """Return the shares of a token in the scores of documents, reckoned with another mean length.

        Args:
            shares: With the mean length of this corpus.
            lengths: Tokens of each document.
            total: Has the other mean length.
        """
        # From the share follows how often a document has the token, rounding errors aside; it has it at least once.
        counts = np.rint(shares * _norm(lengths, self.mean_length) / np.maximum(_LIMIT - shares, _TINY))
        counts = np.maximum(counts, 1.0)
        return counts * _LIMIT / (counts + _norm(lengths, total.mean_length))


def weight_of(score: float, count: int, length: int, mean: float) -> float:
    """Return the weight of a token that explains a score.

    Args:
        score: Of a document for the token alone.
        count: How often the document has it, at least once.
        length: Tokens of the document.
        mean: Tokens per document.
    """
    return score / _share(count, length, mean)


def mean_length(score: float, weight: float, count: int, length: int) -> float:
    """Return the mean document length that explains a score.

    Args:
        score: Of a document for one token.
        weight: Of the token.
        count: How often the document has it.
        length: Tokens of the document.
    """
    share = (weight * count * (_K1 + 1) / score - count) / _K1 - (1 - _B) if score > 0 else 0.0
    # Without a share the score says nothing; the document itself is the best guess.
    return _B * length / share if share > 0 else float(length)


def _share(count: int, length: int, mean: float) -> float:
    return count * _LIMIT / (count + _K1 * (1 - _B + _B * length / mean))


def _norm(lengths: npt.NDArray[np.int64], mean: float) -> npt.NDArray[np.float64]:
    return np.asarray(_K1 * (1 - _B + _B * lengths / mean), dtype=np.float64)
