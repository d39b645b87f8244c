"""Choosing between a scan and indexes on a key column, from facts alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table.keys.key_index import BTREE, ZONE_MAP, ColumnSizes, KeyBounds
from memwal_core.base_table.keys.search_plan import SCAN, SearchFacts, choose_way
from memwal_core.base_table.keys.spans import Spans, around, spans_of

FRAGMENTS, ZONES, ZONE_ROWS = 20, 100, 8192
ROWS = FRAGMENTS * ZONES * ZONE_ROWS
FACTS = SearchFacts(dict.fromkeys(range(FRAGMENTS), ZONES * ZONE_ROWS), ColumnSizes(4.0, 4096), 1)
REQUEST = 4096


def zone_map(covered: int = FRAGMENTS) -> KeyBounds:
    lows = np.arange(covered * ZONES, dtype=np.int64) * ZONE_ROWS
    rows = np.full(len(lows), ZONE_ROWS, np.int64)
    owners = np.repeat(np.arange(covered), ZONES)
    return KeyBounds("z", ZONE_MAP, "id", frozenset(range(covered)), lows, lows + ZONE_ROWS - 1, rows, owners, 50_000)


def btree() -> KeyBounds:
    lows = np.arange(ROWS // 4096, dtype=np.int64) * 4096
    rows, nothing = np.full(len(lows), 4096, np.int64), np.empty(0, np.int64)
    sample, covered = np.arange(4096, dtype=np.uint64), frozenset(range(FRAGMENTS))
    return KeyBounds("b", BTREE, "id", covered, lows, lows + 4095, rows, nothing, 60_000, 28_000, sample)


def wanted(values) -> Spans:
    return spans_of(pa.chunked_array([pa.array(values, pa.int64())]))


SOME = np.random.default_rng(1).choice(ROWS, 1_000, replace=False)


@pytest.mark.parametrize(
    ("index", "values", "expected"),
    [
        (zone_map(), range(ROWS - 10_000, ROWS), "ZoneMap z by span"),
        (zone_map(), SOME, "ZoneMap z by value"),
        (zone_map(), np.arange(0, ROWS, ROWS // 9_000), SCAN),
        (btree(), SOME, "BTree b by value"),
        (btree(), np.arange(0, ROWS, ROWS // 9_000), SCAN),
        (btree(), range(ROWS + 5, ROWS + 50_000), "BTree b by span"),
        (zone_map(covered=2), range(10), SCAN),
        (zone_map(covered=10), range(10), "ZoneMap z by span"),
    ],
)
def test_the_cheapest_way_is_taken(index, values, expected):
    choice = choose_way(FACTS, [(index, wanted(values))], REQUEST)
    assert choice.chosen.name == expected
    assert {SCAN} < {way.name for way in choice.ways}
    assert all(way.name in choice.reason for way in choice.ways)


def test_dear_requests_favour_the_scan():
    assert choose_way(FACTS, [(btree(), wanted(SOME))], 1 << 20).chosen.name == SCAN


def test_a_condition_has_a_bounded_number_of_terms():
    ways = choose_way(FACTS, [(zone_map(), wanted(np.arange(0, ROWS, ROWS // 50_000)))], REQUEST).ways
    assert max(way.condition.count("AND") for way in ways) <= 128
    assert max(len(way.condition) for way in ways) < 20_000


def test_spans_join_where_no_unit_lies_between():
    spans = wanted([1, 2, 50, 51, 120, 500])
    lows, highs = np.array([0, 40, 80, 100, 200, 300]), np.array([10, 60, 90, 130, 299, 600])
    assert spans.joined(lows, highs, 10).pairs() == [(1, 51), (120, 120), (500, 500)]
    assert spans.joined(lows, highs, 2).pairs()[0][0] == 1
    assert len(spans.joined(lows, highs, 2)) == 2
    assert len(spans.joined(lows, highs, 1)) == 1


def test_spans_hit_what_they_touch():
    spans = around([(10, 20), (15, 30), (50, 50)])
    assert spans.pairs() == [(10, 30), (50, 50)]
    lows, highs = np.array([0, 0, 31, 50, 51, 30]), np.array([9, 10, 49, 60, 60, 40])
    assert spans.hit(lows, highs).tolist() == [False, True, False, True, False, True]


def test_texts_and_bytes_are_spans_too():
    spans = spans_of(pa.chunked_array([pa.array(["b", "a", "b"])]))
    assert spans.pairs() == [("a", "a"), ("b", "b")]
    assert spans.are_values
    assert not around([(b"a", b"c")]).are_values
