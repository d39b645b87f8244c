"""Every row of an index that has a word of a query, scored by the statistics of several corpora together.

No text is read. What Lance scores a row by one word alone tells, with the row's length, how often the
row has the word; that gives the word's part of any other score. Columns all the way: a word that a
million rows have takes some hundred milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs
from lance.query import MatchQuery

from memwal_core.base_table import translated
from memwal_core.reader.bm25 import CorpusStatistics, LocalScores
from memwal_core.reader.superseded import ROW_ID

_SCORE = "_score"

LengthsOf = Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.int64]]
"""From row ids, ascending, to the tokens that the rows have."""


@dataclass(frozen=True, slots=True)
class GlobalScores:
    """What rows are to be scored by.

    Attributes:
        total: Of all corpora.
        asked: How often the query names each token.
    """

    total: CorpusStatistics
    asked: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """The words of a query in one index.

    Attributes:
        dataset: What the index is of.
        column: The text column.
        by_token: Token -> a word that gives it.
        local: What Lance scores them by, exactly.
        lengths: Of the index.
        options: Of the scanner: which rows count.
    """

    dataset: lance.LanceDataset
    column: str
    by_token: Mapping[str, str]
    local: LocalScores
    lengths: LengthsOf
    options: Mapping[str, Any]

    def best(self, k: int, filter_sql: str | None, scores: GlobalScores) -> tuple[pa.Array, npt.NDArray[np.float64]]:
        """Return the row ids of the best rows, in no order, and their scores.

        Args:
            k: How many at most.
            filter_sql: Only rows that fulfil it; None for all.
            scores: What they are scored by.

        Raises:
            UnavailableError: Storage failed.
        """
        found = {token: self._matches(self.by_token[token], filter_sql) for token in self.local.weights}
        ids = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *(own for own, _ in found.values())]))
        lengths = self.lengths(ids)
        total = np.zeros(len(ids))
        for token, (own, local) in found.items():
            places = np.searchsorted(ids, own)
            weight = scores.asked.get(token, 1) * scores.total.weight(scores.total.frequencies[token])
            shares = local / self.local.weights[token]
            total[places] += weight * self.local.moved(shares, lengths[places], scores.total)
        chosen = np.argpartition(-total, k)[:k] if len(ids) > k else np.arange(len(ids))
        return pa.array(ids[chosen], pa.uint64()), total[chosen]

    def _matches(self, word: str, filter_sql: str | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
        query = MatchQuery(word, self.column)
        with translated("search texts", self.dataset.uri):
            scanner = self.dataset.scanner(
                columns=[_SCORE], full_text_query=query, with_row_id=True, filter=filter_sql, **self.options
            )
            found = scanner.to_table()
        return found.column(ROW_ID).to_numpy(), found.column(_SCORE).to_numpy().astype(np.float64)


def rows_of(dataset: lance.LanceDataset, ids: pa.Array, columns: tuple[str, ...]) -> pa.Table:
    """Return some columns of rows by id, in the order of the ids.

    Raises:
        UnavailableError: Storage failed.
    """
    wanted = ids.to_numpy()
    ascending = np.sort(wanted)
    with translated("read the best rows", dataset.uri):
        found = dataset.scanner(
            columns=list(columns), with_row_id=True, row_addr_allowlist=serialize_row_addrs(ascending.tolist())
        ).to_table()
    order = np.argsort(found.column(ROW_ID).to_numpy())
    return found.select(list(columns)).take(pa.array(order[np.searchsorted(ascending, wanted)]))
