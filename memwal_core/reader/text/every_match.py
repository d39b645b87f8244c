"""Every row of an index that has a word of a query, scored by the statistics of several segments together.

No text is read. Lance's score of a row for one word, together with the row's length, determines how often the row has
the word, and so the word's part of any other score. All steps work on columns: a word that a million rows have takes
some hundred milliseconds, and 20 bytes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
from lance.query import MatchQuery

from memwal_core.base_table import translated
from memwal_core.format.columns import ROW_ID, SCORE_COLUMN
from memwal_core.reader.text.bm25 import GlobalScores, LocalScores

_PRECISION = 1e-5
"""Relative error of Lance's 32-bit scores, with a margin."""

LengthsOf = Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.int64]]
"""From row ids, ascending, to the number of tokens of each row."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows that contain one word.

    Attributes:
        ids: Their row ids, in any order.
        indexed: Rows of the index with the word; more than ``ids`` if some were filtered out.
    """

    ids: npt.NDArray[np.uint64]
    scores: npt.NDArray[np.float32]
    indexed: int

    def kept(self, is_kept: npt.NDArray[np.bool_]) -> Matches:
        """Return the rows whose flag is set."""
        return self if is_kept.all() else Matches(self.ids[is_kept], self.scores[is_kept], self.indexed)


def matches_of(dataset: lance.LanceDataset, column: str, word: str, **options: Any) -> Matches:  # noqa: ANN401
    """Return all rows of an indexed dataset with ``word``, which must be one token; ``options`` go to the scanner."""
    with translated("search texts", dataset.uri):
        found = dataset.scanner(
            columns=[SCORE_COLUMN], full_text_query=MatchQuery(word, column), with_row_id=True, **options
        ).to_table()
    return Matches(found.column(ROW_ID).to_numpy(), found.column(SCORE_COLUMN).to_numpy(), found.num_rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one token adds to the scores of rows, as if documents had the mean length of their segment.

    Attributes:
        adds: The part of each row's score.
        highest: Upper limit of ``adds`` at any mean length.
    """

    ids: npt.NDArray[np.uint64]
    adds: npt.NDArray[np.float64]
    highest: float


def best_of(
    found: Mapping[str, Matches],
    local: LocalScores,
    lengths: LengthsOf,
    k: int,
    scores: GlobalScores,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """Return the row ids of the best rows of one segment, at most ``k`` in no order, and their scores.

    ``found`` maps each token to at least one match, scored by ``local`` exactly. ``lengths`` is called only for rows
    that may be among the best.
    """
    shrunk, grown = local.stretch(scores.total)
    shrunk, grown = shrunk * (1 - _PRECISION), grown * (1 + _PRECISION)
    parts = {}
    for token, each in found.items():
        adds = scores.weight(token) * local.shares(token, each.scores.astype(np.float64))
        parts[token] = _Part(each.ids, adds, float(adds.max()) * grown)
    ids = _candidates(list(parts.values()), max(_at_rank(each.adds, k) for each in parts.values()) * shrunk, grown)
    by_token = {token: _placed(each, ids) for token, each in parts.items()}
    rough = np.sum(list(by_token.values()), axis=0)
    kept = rough * grown >= _at_rank(rough, k) * shrunk
    ids = ids[kept]
    known, exact = lengths(ids), np.zeros(len(ids))
    for token, adds in by_token.items():
        has = adds[kept] > 0
        weight = scores.weight(token)
        exact[has] += weight * local.moved(adds[kept][has] / weight, known[has], scores.total)
    best = np.argpartition(-exact, k)[:k] if len(ids) > k else np.arange(len(ids))
    return ids[best], exact[best]


def _candidates(parts: Sequence[_Part], least: float, grown: float) -> npt.NDArray[np.uint64]:
    """Return the rows whose score may reach ``least``, ascending.

    A row that has only tokens whose parts together stay below ``least`` is never among the best, so those tokens are
    skipped.
    """
    together, every = 0.0, sum(each.highest for each in parts)
    chosen = [np.empty(0, dtype=np.uint64)]
    for each in sorted(parts, key=lambda part: part.highest):
        together += each.highest
        if together >= least:
            chosen.append(each.ids[each.adds * grown + (every - each.highest) >= least])
    return np.unique(np.concatenate(chosen))


def _placed(part: _Part, ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return what a token adds to each row of ``ids``, which ascend; 0 for rows without it."""
    adds = np.zeros(len(ids))
    if len(ids):
        places = np.minimum(np.searchsorted(ids, part.ids), len(ids) - 1)
        has = ids[places] == part.ids
        adds[places[has]] = part.adds[has]
    return adds


def _at_rank(values: npt.NDArray[np.float64], k: int) -> float:
    """Return the k-th highest value; 0 if there are fewer."""
    return float(np.partition(values, -k)[-k]) if len(values) >= k else 0.0
