"""A merge that is recounted in shares comes to what a model of it comes to, whatever was merged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table import BaseTable
from memwal_core.flushed.read import MergeTarget
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.quality.checks.recount import Recount, recount
from tests.property.test_key_counts import sharing_of
from tests.property.test_key_lookups import COMPOSITES, KEYS, _rows, _schema

Key = tuple[Any, ...]
Generation = list[tuple[Key, bool]]


@st.composite
def merges(draw: st.DrawFn) -> tuple[tuple[pa.DataType, ...], list[Key], list[Key], list[list[Generation]]]:
    """Draw the keys of a table before and after a merge, right or wrong, and the generations of some regions."""
    kinds = draw(st.sampled_from([*((kind,) for kind in KEYS), *COMPOSITES]))
    keys = draw(st.lists(st.tuples(*(KEYS[kind][1] for kind in kinds)), min_size=2, max_size=12, unique=True))
    some = st.lists(st.sampled_from(keys), max_size=20)
    # A key is of one region.
    regions = [keys[::2], keys[1::2]]
    waiting = [
        draw(st.lists(st.lists(st.tuples(st.sampled_from(own), st.booleans()), min_size=1, max_size=8), max_size=3))
        for own in regions
    ]
    return kinds, draw(some), draw(some), waiting


def expected(before: list[Key], after: list[Key], regions: list[list[Generation]]) -> Recount:
    newest = {key: deleted for region in regions for generation in region for key, deleted in generation}
    written = [key for key, deleted in newest.items() if not deleted]
    return Recount(
        expected_rows=sum(key not in newest for key in before) + len(written),
        rows=len(after),
        written_keys=len(written),
        present_keys=sum(newest.get(key) is False for key in after),
        undead_keys=sum(newest.get(key) is True for key in after),
    )


@settings(max_examples=20)
@given(drawn=merges(), part_bytes=st.sampled_from([16, 64, 1 << 20]), times=st.integers(1, 2))
def test_recount_in_shares_is_that_of_a_model(
    drawn: tuple[tuple[pa.DataType, ...], list[Key], list[Key], list[list[Generation]]], part_bytes: int, times: int
) -> None:
    kinds, before, after, regions = drawn
    schema = _schema(kinds)
    with tempfile.TemporaryDirectory() as directory:
        uri = str(Path(directory) / "t")
        for keys in (before, after):
            lance.write_dataset(_rows(schema, keys), uri, mode="overwrite")
        merged = []
        for number, region in enumerate(regions):
            places = [f"{uri}/{number}-{generation}" for generation in range(len(region))]
            for place, rows in zip(places, region, strict=True):
                marks = pa.array([deleted for _, deleted in rows])
                table = _rows(schema, [key for key, _ in rows]).append_column(TOMBSTONE_COLUMN, marks)
                lance.write_dataset(table, place)
            merged.append(list(enumerate(places, start=1)))
        target: MergeTarget = merge_target(BaseTable.open(uri).state())
        versions = lance.dataset(uri, version=1), lance.dataset(uri, version=2)

        found = [
            recount(sharing_of(uri, part_bytes=part_bytes, times=times, shared=shared), *versions, merged, target)
            for shared in (False, True)
        ]

    assert found == [expected(before, after, regions)] * 2
