"""BM25 as Lance computes it, over the statistics of several corpora together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

    def plus(self, other: CorpusStatistics, sign: int = 1) -> CorpusStatistics:
        """Return the statistics of both corpora together, or of this one without the other (sign -1)."""
        tokens = {*self.frequencies, *other.frequencies}
        return CorpusStatistics(
            self.documents + sign * other.documents,
            self.tokens + sign * other.tokens,
            {each: self.frequencies.get(each, 0) + sign * other.frequencies.get(each, 0) for each in tokens},
        )

    def score(self, tokens: Sequence[str], asked: Mapping[str, int] | None = None) -> float:
        """Return the score of a document.

        Args:
            tokens: Of the document.
            asked: How often the query names each token; once if None.
        """
        mean = self.tokens / self.documents if self.documents > 0 and self.tokens > 0 else 1.0
        times = {} if asked is None else asked
        counted = ((times.get(each, 1), tokens.count(each), df) for each, df in self.frequencies.items())
        return sum(times * self.weight(df) * _share(tf, len(tokens), mean) for times, tf, df in counted if tf)

    def weight(self, frequency: float) -> float:
        """Return how much a token says that so many documents contain."""
        return math.log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))


@dataclass(frozen=True, slots=True)
class LocalScores:
    """What Lance scores the documents of one corpus by.

    Attributes:
        mean_length: Tokens per document that it reckons with; 0 without tokens.
        weights: Token -> its weight, too low rather than too high; only tokens that some document has.
    """

    mean_length: float
    weights: Mapping[str, float]

    @classmethod
    def of(cls, corpus: CorpusStatistics, frequencies: Mapping[str, float]) -> LocalScores:
        """Return the scores of a corpus.

        Args:
            corpus: Its documents and tokens.
            frequencies: Token -> documents that contain it, too high rather than too low.
        """
        mean = corpus.tokens / corpus.documents if corpus.documents else 0.0
        weights = {token: corpus.weight(min(frequency, corpus.documents)) for token, frequency in frequencies.items()}
        return cls(mean, weights)

    def highest(self, score: float, total: CorpusStatistics, asked: Mapping[str, int]) -> float:
        """Return a score in all corpora together that no document with a score in this one exceeds.

        A score is a sum over tokens of weight times share, and a share is between 0 and its limit. The score
        says how much the shares, at the weights of this corpus, come to together; at most it all went into
        those tokens whose weights grow most.

        Args:
            score: In this corpus, at most.
            total: What documents are to be scored by.
            asked: How often the query names each token.
        """
        mean = total.tokens / total.documents if total.documents else 0.0
        # Of documents of one length, those of the corpus with the smaller mean count as longer.
        stretch = max(1.0, mean / self.mean_length) if self.mean_length else 1.0
        named = [
            (total.weight(total.frequencies[token]), weight, asked.get(token, 1))
            for token, weight in self.weights.items()
        ]
        growth = sorted(named, key=lambda each: each[0] / each[1], reverse=True)
        left, best = score, 0.0
        for there, here, times in growth:
            spent = min(left, times * here * _LIMIT / stretch)
            best += spent * stretch * there / here
            left -= spent
        return best

    def moved(
        self, shares: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64], total: CorpusStatistics
    ) -> npt.NDArray[np.float64]:
        """Return the shares of a token in the scores of documents, reckoned with another mean length.

        Args:
            shares: With the mean length of this corpus.
            lengths: Tokens of each document.
            total: Has the other mean length.
        """
        mean = total.tokens / total.documents if total.documents else 1.0
        # From the share follows how often a document has the token, rounding errors aside.
        counts = np.rint(shares * _norm(lengths, self.mean_length) / np.maximum(_LIMIT - shares, _TINY))
        return counts * _LIMIT / (counts + _norm(lengths, mean))


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
