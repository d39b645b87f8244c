"""BM25 over summed statistics."""

from __future__ import annotations

import pytest

from memwal_core.reader.bm25 import CorpusStatistics, mean_length


@pytest.mark.req("RD-55")
def test_statistics_of_two_corpora_add_up_and_can_be_taken_apart() -> None:
    one = CorpusStatistics(10, 100, {"a": 3})
    other = CorpusStatistics(5, 20, {"a": 1, "b": 2})
    both = one.plus(other)

    assert both == CorpusStatistics(15, 120, {"a": 4, "b": 2})
    assert both.plus(other, -1) == CorpusStatistics(10, 100, {"a": 3, "b": 0})


@pytest.mark.req("RD-56")
def test_rarer_word_and_shorter_text_score_higher() -> None:
    corpus = CorpusStatistics(100, 1000, {"rare": 1, "common": 90})

    assert corpus.score(["rare", "x"]) > corpus.score(["common", "x"])
    assert corpus.score(["rare", "x"]) > corpus.score(["rare", *["x"] * 20])
    assert corpus.score(["x"]) == 0


def test_mean_length_is_recovered_from_a_score() -> None:
    corpus = CorpusStatistics(50, 50 * 7.25, {"a": 4})
    score = corpus.score(["a", "a", "b"])

    assert mean_length(score, corpus.weight(4), 2, 3) == pytest.approx(7.25)
    assert mean_length(0.0, 1.0, 1, 3) == 3
