"""BM25 over summed statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.reader.text.bm25 import GlobalScores, LocalScores, SegmentStatistics, mean_length, weight_of
from memwal_core.reader.text.every_match import Matches, best_of


def _score(segment: SegmentStatistics, document: Sequence[str]) -> float:
    """Score a document by the formula itself."""
    norm = 1.2 * (0.25 + 0.75 * len(document) / segment.mean_length)
    counted = ((document.count(token), frequency) for token, frequency in segment.frequencies.items())
    return sum(segment.weight(frequency) * count * 2.2 / (count + norm) for count, frequency in counted)


def _statistics(documents: Sequence[Sequence[str]], tokens: Sequence[str]) -> SegmentStatistics:
    frequencies = {token: sum(token in each for each in documents) for token in tokens}
    return SegmentStatistics(len(documents), sum(map(len, documents)), frequencies)


@pytest.mark.req("RD-55")
def test_statistics_of_two_corpora_add_up_and_can_be_taken_apart() -> None:
    one = SegmentStatistics(10, 100, {"a": 3})
    other = SegmentStatistics(5, 20, {"a": 1, "b": 2})
    both = one.plus(other)

    assert both == SegmentStatistics(15, 120, {"a": 4, "b": 2})
    assert both.plus(other, -1) == SegmentStatistics(10, 100, {"a": 3, "b": 0})


@pytest.mark.req("RD-56")
def test_rarer_word_weighs_more_also_in_32_bits() -> None:
    segment = SegmentStatistics(100, 1000, {})

    assert segment.weight(1) > segment.weight(90) > 0
    assert segment.stored_weight(90) == pytest.approx(segment.weight(90), rel=1e-5)
    assert SegmentStatistics(10**8, 10**9, {}).stored_weight(10**8) == 0  # As much is left of it in Lance.


def test_mean_length_is_recovered_from_a_score() -> None:
    segment = SegmentStatistics(50, 50 * 7.25, {"a": 4})
    score = _score(segment, ["a", "a", "b"])

    assert mean_length(score, segment.weight(4), 2, 3) == pytest.approx(7.25)
    assert mean_length(0.0, 1.0, 1, 3) == 3


@pytest.mark.req("RD-55")
@settings(derandomize=True, deadline=None)
@given(mean=st.floats(1, 1000), count=st.integers(1, 50), rest=st.integers(0, 100))
def test_share_stays_within_what_another_mean_length_can_make_of_it(mean: float, count: int, rest: int) -> None:
    local, total = SegmentStatistics(100, 800, {"a": 10}), SegmentStatistics(1000, 1000 * mean, {"a": 10})
    scores = LocalScores.of(local, {"a": 10})
    document = ["a"] * count + ["x"] * rest
    share = _score(local, document) / local.weight(10)
    shrunk, grown = scores.stretch(total)

    assert share * shrunk * (1 - 1e-9) <= _score(total, document) / total.weight(10) <= share * grown * (1 + 1e-9)


def test_share_of_a_score_moves_to_another_mean_length() -> None:
    local, total = SegmentStatistics(100, 800, {"a": 10}), SegmentStatistics(1000, 5000, {"a": 50})
    documents = [["a"] * count + ["x"] * rest for count in (1, 2, 7, 40) for rest in (0, 3, 100)]
    scores = LocalScores.of(local, {"a": 10})
    shares = scores.shares("a", np.array([_score(local, each) for each in documents], dtype=np.float32))
    lengths = np.array([len(each) for each in documents])
    expected = [_score(total, each) / total.weight(50) for each in documents]

    assert scores.moved(shares.astype(np.float64), lengths, total) == pytest.approx(expected, rel=1e-12)
    assert weight_of(_score(local, documents[4]), 2, 5, 8.0) == pytest.approx(local.weight(10))


_DOCUMENTS = st.lists(st.lists(st.sampled_from("abcdx"), min_size=1, max_size=12), min_size=1, max_size=30)


@pytest.mark.req("RD-55", "RD-56")
@settings(derandomize=True, deadline=None)
@given(own=_DOCUMENTS, others=_DOCUMENTS, k=st.integers(1, 8), gone=st.integers(0, 200))
def test_best_rows_of_a_corpus_are_those_of_the_formula(
    own: list[list[str]], others: list[list[str]], k: int, gone: int
) -> None:
    """Rows that are passed over, because their tokens cannot carry them far enough, are never among the best."""
    tokens = "abc"
    # Lance's statistics may count documents that are gone; these all have the first token.
    indexed = [*own, *([["a", "x"]] * gone)]
    local, total = _statistics(indexed, tokens), _statistics([*own, *others], tokens)
    found = {}
    for token in tokens:
        rows = [number for number, each in enumerate(own) if token in each]
        single = SegmentStatistics(local.documents, local.tokens, {token: local.frequencies[token]})
        if rows:
            scores = np.array([_score(single, own[row]) for row in rows], dtype=np.float32)
            best_first = np.argsort(-scores, kind="stable")
            found[token] = Matches(np.array(rows, dtype=np.uint64)[best_first], scores[best_first], len(rows))
    lengths = np.array([len(each) for each in own])
    if not found:
        return
    weights = LocalScores.of(local, {token: int(local.frequencies[token]) for token in found})

    ids, scored = best_of(found, weights, lambda ids: lengths[ids.astype(np.int64)], k, GlobalScores(total, {}))

    every = np.array([_score(total, each) for each in own])
    assert np.sort(scored)[::-1] == pytest.approx(np.sort(every[every > 0])[::-1][:k], rel=1e-6)
    assert every[ids.astype(np.int64)] == pytest.approx(scored, rel=1e-6)
