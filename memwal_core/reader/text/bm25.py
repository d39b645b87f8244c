"""BM25 as Lance computes it, over the statistics of several segments together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_K1 = 1.2
_B = 0.75
_LIMIT = _K1 + 1
"""Upper limit of a token's share of a score, however often a document has the token."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """What BM25 needs to know of a segment.

    Attributes:
        frequencies: Token of the query -> documents that contain it.
    """

    documents: float
    tokens: float
    frequencies: Mapping[str, float]

    @property
    def mean_length(self) -> float:
        """Tokens per document; 1 if there are no tokens, where every score is 0 anyway."""
        return self.tokens / self.documents if self.documents > 0 and self.tokens > 0 else 1.0

    def plus(self, other: SegmentStatistics, sign: int = 1) -> SegmentStatistics:
        """Return the statistics of both segments together, or of this one without the other (``sign`` -1)."""
        tokens = {*self.frequencies, *other.frequencies}
        return SegmentStatistics(
            self.documents + sign * other.documents,
            self.tokens + sign * other.tokens,
            {each: self.frequencies.get(each, 0) + sign * other.frequencies.get(each, 0) for each in tokens},
        )

    def weight(self, frequency: float) -> float:
        """Return the inverse document frequency of a token that occurs in ``frequency`` documents."""
        return math.log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))

    def stored_weight(self, frequency: int) -> float:
        """Return the same in Lance's 32-bit arithmetic, which is coarse for a word that nearly all texts have."""
        documents, having, half = np.float32(self.documents), np.float32(frequency), np.float32(0.5)
        return float(np.log((documents - having + half) / (having + half) + np.float32(1)))


@dataclass(frozen=True, slots=True)
class GlobalScores:
    """The statistics of all segments, and how often the query names each token."""

    total: SegmentStatistics
    asked: Mapping[str, int]

    def weight(self, token: str) -> float:
        """Return the factor between a token's share in a document and its part of the score."""
        return self.asked.get(token, 1) * self.total.weight(self.total.frequencies[token])


@dataclass(frozen=True, slots=True)
class LocalScores:
    """What Lance scores the documents of one segment by: its mean length, and the weight of each token that occurs."""

    mean_length: float
    weights: Mapping[str, float]

    @classmethod
    def of(cls, segment: SegmentStatistics, frequencies: Mapping[str, int]) -> LocalScores:
        """Return the scores of a segment; ``frequencies`` maps each token to the documents that contain it."""
        return cls(segment.mean_length, {token: segment.stored_weight(df) for token, df in frequencies.items()})

    def shares(self, token: str, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return a token's shares in documents, from the scores that Lance gave them for the token alone.

        If all of many million documents have the token, its 32-bit weight rounds to 0 and the scores tell nothing. Each
        document then counts as one of mean length that has the token once.
        """
        weight = self.weights[token]
        return scores / weight if weight > 0 else np.ones(len(scores))

    def stretch(self, total: SegmentStatistics) -> tuple[float, float]:
        """Return the smallest and largest factor by which the mean length of ``total`` can change a share."""
        ratio = total.mean_length / self.mean_length
        return min(1.0, ratio), max(1.0, ratio)

    def moved(
        self, shares: npt.NDArray[np.float64], lengths: npt.NDArray[np.int64], total: SegmentStatistics
    ) -> npt.NDArray[np.float64]:
        """Return a token's shares, which use this segment's mean length, recomputed with that of ``total``."""
        # The share determines how often a document has the token, up to rounding errors; at least once.
        counts = np.rint(shares * _norm(lengths, self.mean_length) / np.maximum(_LIMIT - shares, _TINY))
        counts = np.maximum(counts, 1.0)
        return counts * _LIMIT / (counts + _norm(lengths, total.mean_length))


def weight_of(score: float, count: int, length: int, mean: float) -> float:
    """Return the token weight that explains a document's score for the token alone; ``count`` is at least 1."""
    return score / _share(count, length, mean)


def mean_length(score: float, weight: float, count: int, length: int) -> float:
    """Return the mean document length that explains a document's score for one token."""
    share = (weight * count * (_K1 + 1) / score - count) / _K1 - (1 - _B) if score > 0 else 0.0
    # Without a share the score says nothing; the document itself is the best guess.
    return _B * length / share if share > 0 else float(length)


def _share(count: int, length: int, mean: float) -> float:
    return count * _LIMIT / (count + _K1 * (1 - _B + _B * length / mean))


def _norm(lengths: npt.NDArray[np.int64], mean: float) -> npt.NDArray[np.float64]:
    return np.asarray(_K1 * (1 - _B + _B * lengths / mean), dtype=np.float64)
