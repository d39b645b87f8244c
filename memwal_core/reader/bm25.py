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

    def score(self, tokens: Sequence[str]) -> float:
        """Return the score of a document given by its tokens, for the query's tokens."""
        mean = self.tokens / self.documents if self.documents > 0 and self.tokens > 0 else 1.0
        norm = _K1 * (1 - _B + _B * len(tokens) / mean)
        counted = ((tokens.count(each), frequency) for each, frequency in self.frequencies.items())
        return sum(self.weight(df) * tf * (_K1 + 1) / (tf + norm) for tf, df in counted if tf)

    def weight(self, frequency: float) -> float:
        """Return how much a token says that so many documents contain."""
        return math.log(1 + (self.documents - frequency + 0.5) / (frequency + 0.5))


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
