"""BM25 over summed statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.reader.bm25 import CorpusStatistics, LocalScores, mean_length, weight_of


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


@pytest.mark.req("RD-55")
@settings(derandomize=True, deadline=None)
@given(
    rare=st.integers(1, 20),
    common=st.integers(1, 50),
    extra=st.integers(0, 1000),
    length=st.integers(1, 30),
    counts=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_no_document_scores_higher_than_the_bound(
    rare: int, common: int, extra: int, length: int, counts: tuple[int, int]
) -> None:
    local = CorpusStatistics(60, 600, {"a": rare, "b": common})
    total = CorpusStatistics(60 + extra, 600 + 17 * extra, {"a": rare + extra // 2, "b": common})
    document = ["a"] * counts[0] + ["b"] * counts[1] + ["c"] * length

    scores = LocalScores.of(local, {"a": 20, "b": common})  # one frequency is only known to be no higher

    bound = scores.highest(local.score(document), total, {"a": 1, "b": 1})

    assert total.score(document) <= bound * (1 + 1e-9)


def test_bound_is_the_score_itself_where_there_is_one_corpus() -> None:
    corpus = CorpusStatistics(100, 800, {"a": 90})
    score = corpus.score(["a", "x", "y"])

    assert LocalScores.of(corpus, corpus.frequencies).highest(score, corpus, {"a": 1}) == pytest.approx(
        score, rel=1e-12
    )


def test_share_of_a_score_moves_to_another_mean_length() -> None:
    local, total = CorpusStatistics(100, 800, {"a": 10}), CorpusStatistics(1000, 5000, {"a": 50})
    documents = [["a"] * count + ["x"] * rest for count in (1, 2, 7, 40) for rest in (0, 3, 100)]
    scores = LocalScores.of(local, {"a": 10})
    shares = np.array([local.score(each) for each in documents], dtype=np.float32) / scores.weights["a"]
    lengths = np.array([len(each) for each in documents])
    expected = [total.score(each) / total.weight(50) for each in documents]

    assert scores.moved(shares.astype(np.float64), lengths, total) == pytest.approx(expected, rel=1e-12)
    assert weight_of(local.score(documents[4]), 2, 5, 8.0) == pytest.approx(local.weight(10))
