"""What a search is forecast to read, against what Lance counts."""

from __future__ import annotations

from math import inf

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import DeletionTarget, describe_fragments
from memwal_core.base_table.commit.superseding import KeyScan, supersede
from memwal_core.base_table.keys.choose_search import choose_search
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.base_table.keys.spans import spans_of
from memwal_core.settings import MergeSettings

ROWS, FRAGMENTS = 200_000, 8
FACTOR = 1.5
TOGETHER = 2.0
"""For rows that lie together although their keys do not: nothing says so before they are found. They take the fewer
requests, too."""

SMALL, FEW = 24 * 1024, 10
"""Below this the ends of files outweigh what is read of them: bytes, and requests."""

KEYS = {
    "ordered": lambda rng: pa.array(np.arange(ROWS)),
    "scattered": lambda rng: pa.array(rng.permutation(ROWS) * 7),
    "texts": lambda rng: pa.array(np.char.mod("%016x", rng.integers(0, 2**62, ROWS))),
}


CELLS = [
    ("ordered", "ZONEMAP", FRAGMENTS),
    ("ordered", "ZONEMAP", FRAGMENTS - 2),
    ("ordered", "BTREE", FRAGMENTS),
    ("scattered", "BTREE", FRAGMENTS - 2),
    ("texts", "BTREE", FRAGMENTS),
    ("texts", "ZONEMAP", FRAGMENTS - 2),
]


@pytest.mark.parametrize(("kind", "index", "covered"), CELLS)
def test_bytes_and_requests_are_as_forecast(tmp_path, kind, index, covered):
    rng, uri, size = np.random.default_rng(1), str(tmp_path / "t"), ROWS // FRAGMENTS
    keys = KEYS[kind](rng)
    for at in range(FRAGMENTS):
        part = pa.table({"id": keys.slice(at * size, size), "v": rng.random(size)})
        lance.write_dataset(part, uri, mode="append" if at else "create")
        if at + 1 == covered:
            lance.dataset(uri).create_scalar_index("id", index)
    table = BaseTable.open(uri)
    for name, numbers in {
        "few": rng.choice(ROWS, 3),
        "dozens": rng.choice(ROWS, 30, replace=False),
        "some": rng.choice(ROWS, 500, replace=False),
        "newest": range(ROWS - 1000, ROWS),
        "many": rng.choice(ROWS, 5000, replace=False),
    }.items():
        wanted = pa.table({"id": keys.take(pa.array(numbers))})
        dataset = table.dataset()
        fragments = describe_fragments(dataset)
        rows = {fragment.fragment_id: fragment.physical_rows for fragment in fragments}
        spans = spans_of(wanted.column("id"))
        ways = choose_search(table, dataset, rows, ["id"], lambda _, of=spans: of, MergeSettings()).ways
        assert len(ways) > 1
        for way in ways:
            dataset = table.dataset()
            dataset.io_stats_incremental()
            target = DeletionTarget(table.store, f"{name}-{way.name}")
            list(supersede(dataset, fragments, [KeySearch(wanted, ["id"])], KeyScan(["id"], way.condition), target))
            counted = dataset.io_stats_incremental()
            is_together = name == "newest" and kind != "ordered"
            facts = (name, way.name, way.detail, way.requests, counted)
            off = abs(way.read_bytes - counted.read_bytes)
            most = TOGETHER if is_together else FACTOR
            assert off <= SMALL or 1 / FACTOR <= way.read_bytes / counted.read_bytes <= most, facts
            off = abs(way.requests - counted.read_iops)
            most = inf if is_together else FACTOR
            assert off <= FEW or 1 / FACTOR <= way.requests / counted.read_iops <= most, facts
