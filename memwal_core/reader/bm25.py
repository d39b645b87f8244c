"""BM25 as Lance computes it, over the statistics of several corpora together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_K1 = 1.2
_B = 0.75


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
        norm = _K1 * (1 - _B + _B * len(tokens) / mean)
        times = {} if asked is None else asked
        counted = ((times.get(each, 1), tokens.count(each), df) for each, df in self.frequencies.items())
        return sum(times * self.weight(df) * tf * (_K1 + 1) / (tf + norm) for times, tf, df in counted if tf)

    def weight(self, frequency: float) -> float:
        """Return how much a token says that so many documents contain."""
        return math.log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))


def largest_gain(local: CorpusStatistics, total: CorpusStatistics) -> float:
    """Return by which factor the global score of a document can exceed its score in one corpus, at most.

    Args:
        local: What the document was scored by; frequencies may be too high, not too low.
        total: What it is to be scored by.
    """
    weights = [
        total.weight(total.frequencies[token]) / local.weight(min(frequency, local.documents))
        for token, frequency in local.frequencies.items()
        if frequency
    ]
    stretch = (total.tokens * local.documents) / (local.tokens * total.documents) if local.tokens else 1.0
    return max(weights, default=0.0) * max(1.0, stretch)


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
