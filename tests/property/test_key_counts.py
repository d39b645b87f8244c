"""Keys counted in shares are the keys that one query over the whole table counts."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table.keys.counts import SAMPLE_KEYS, count_keys
from memwal_core.base_table.keys.tally import split_keys
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.keys import count_keys_in_shares, nullable_key_schema
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings import ExecutorSettings, Settings, StorageSettings
from testkit.pickling_executors import PicklingExecutors
from tests.property.test_key_lookups import COMPOSITES, KEYS

Rows = list[tuple[Any, ...]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[pa.DataType, ...], list[Rows], set[int]]:
    """Draw types of key columns, rows of some fragments with keys that repeat, and the rows that are deleted."""
    kinds = draw(st.sampled_from([*((kind,) for kind in KEYS), *COMPOSITES]))
    values = [draw(st.lists(st.one_of(st.none(), KEYS[kind][1]), min_size=1, max_size=4)) for kind in kinds]
    row = st.tuples(*(st.sampled_from(each) for each in values))
    fragments = draw(st.lists(st.lists(row, min_size=1, max_size=30), min_size=1, max_size=3))
    rows = sum(map(len, fragments))
    return kinds, fragments, draw(st.sets(st.integers(0, rows - 1), max_size=rows // 2))


def as_table(kinds: tuple[pa.DataType, ...], rows: Rows, first: int) -> pa.Table:
    columns = {f'Key "{at}"': pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)}
    return pa.table({**columns, "number": pa.array(range(first, first + len(rows)), pa.int64())})


def sharing_of(uri: str, *, part_bytes: int, times: int, shared: bool = True) -> Sharing:
    options = Settings(
        storage=StorageSettings(fsync=False, retry_wait_s=0), executors=ExecutorSettings(part_bytes=part_bytes)
    )
    context = JobContext(OpenTable.at(uri, settings=options), executors=PicklingExecutors(times=times))
    sharing = Sharing(context, Engine.SPARK if shared else Engine.LOCAL, VerifyRequest())
    sharing.choose(Work())
    return sharing


@settings(max_examples=25)
@given(drawn=tables(), part_bytes=st.sampled_from([16, 64, 1 << 20]), times=st.integers(1, 2))
def test_keys_counted_in_shares_are_those_of_one_query(
    drawn: tuple[tuple[pa.DataType, ...], list[Rows], set[int]], part_bytes: int, times: int
) -> None:
    kinds, fragments, deleted = drawn
    with tempfile.TemporaryDirectory() as directory:
        uri, first = str(Path(directory) / "t"), 0
        for rows in fragments:
            lance.write_dataset(as_table(kinds, rows, first), uri, mode="append" if first else "create")
            first += len(rows)
        dataset = lance.dataset(uri)
        dataset.delete(f"number IN ({', '.join(map(str, [-1, *deleted]))})")
        key = [name for name in dataset.schema.names if name != "number"]

        alone = count_keys(dataset, key)
        shared = count_keys_in_shares(
            sharing_of(uri, part_bytes=part_bytes, times=times), dataset, nullable_key_schema(dataset.schema, key)
        )

    everything = [row for rows in fragments for row in rows]
    truth = Counter(row for number, row in enumerate(everything) if number not in deleted)
    assert shared == alone
    assert (shared.rows, shared.keys) == (truth.total(), len(truth))
    assert len(shared.repeated) == min(SAMPLE_KEYS, sum(count > 1 for count in truth.values()))
    assert all(truth[tuple(each[name] for name in key)] == each["copies"] for each in shared.repeated)


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KEYS), *COMPOSITES], ids=str)
def test_key_belongs_to_one_part_wherever_it_is_read(kinds: tuple[pa.DataType, ...]) -> None:
    values = [KEYS[kind][0] for kind in kinds]
    shortest = min(map(len, values))
    rows = as_table(kinds, [(None,) * len(kinds), *zip(*(each[:shortest] for each in values), strict=True)], 0)
    keys = rows.drop_columns(["number"])
    parts = 7

    found = [
        (part, row)
        for chunk in (keys, keys.slice(1), keys.take(pa.array(range(keys.num_rows - 1, -1, -1))))
        for part, piece in split_keys([chunk], "here", parts)
        for row in map(str, pa.ipc.open_stream(piece.keys).read_all().to_pylist())
    ]

    assert {part for part, _ in found} <= set(range(parts))
    assert len({row for _, row in found}) == len(set(found)) == keys.num_rows
    assert len(found) == 3 * keys.num_rows - 1
