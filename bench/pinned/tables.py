"""Tables on which each job has something to do, and how to see that it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.tables import digits, flush_generations, require_equal, rows, upserts, with_regions
from memwal_core.base_table import BaseTable, read_coverage

FLOATS = 32
REGIONS = 8
GENERATIONS = 4
FRAGMENTS = 16
SMALL_FRAGMENTS = 128
TARGET_ROWS = 20_000
"""Rows of a fragment after a compaction: of fewer than two such fragments there is nothing to divide."""

_SEED = 47
_WORDS = 8
_VOCABULARY = 5_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table with work for one job.

    Attributes:
        uri: The table, of which trials work on copies.
        request: The job and what it is asked for.
        check: Raises if the job was not done on the copy whose address it gets.
    """

    uri: Path
    request: Mapping[str, object]
    check: Callable[[str], None]


def to_merge(directory: Path, *, base_rows: int, source_rows: int) -> Prepared:
    """Make a table with flushed MemTables, half of whose keys are in the base table."""
    rng = np.random.default_rng(_SEED)
    uri = directory / "table"
    lance.write_dataset(rows(np.arange(base_rows), rng, floats=FLOATS), str(uri))
    count = source_rows // GENERATIONS
    flush_generations(
        with_regions(str(uri), REGIONS),
        [rows(upserts(number, count, rng, base_rows=base_rows), rng, floats=FLOATS) for number in range(GENERATIONS)],
    )

    def check(copy: str) -> None:
        require_equal(lance.dataset(copy).count_rows(), base_rows + GENERATIONS * (count - count // 2))

    return Prepared(uri, {"job": "merge"}, check)


def to_catch_up(directory: Path, *, indexed_rows: int, new_rows: int) -> Prepared:
    """Make a table with a BTREE, a text and a vector index that lack most rows."""
    rng = np.random.default_rng(_SEED)
    uri = str(directory / "table")
    dataset = lance.write_dataset(_texts(0, indexed_rows, rng), uri)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("body", "INVERTED")
    dataset.create_index("vector", "IVF_PQ", num_partitions=16, num_sub_vectors=FLOATS // 4)
    _append(uri, indexed_rows, new_rows, lambda first, count: _texts(first, count, rng))
    with_regions(uri, REGIONS)

    def check(copy: str) -> None:
        table = BaseTable.open(copy)
        indexes = read_coverage(table, table.state().version).indexes
        require_equal([len(each.unindexed_fragments) for each in indexes], [0, 0, 0])

    return Prepared(directory / "table", {"job": "catchup"}, check)


def to_compact(directory: Path, *, row_count: int) -> Prepared:
    """Make a table with a BTREE on its key, in fragments of which several make one."""
    uri = _in_fragments(directory, row_count, SMALL_FRAGMENTS, floats=FLOATS * 8)
    lance.dataset(uri).create_scalar_index("id", "BTREE")

    def check(copy: str) -> None:
        dataset = lance.dataset(copy)
        require_equal((dataset.count_rows(), len(dataset.get_fragments()) <= SMALL_FRAGMENTS // 2), (row_count, True))

    return Prepared(Path(uri), {"job": "compact", "force": True}, check)


def to_verify(directory: Path, *, row_count: int) -> Prepared:
    """Make a table whose keys are random texts, as of UUIDs without their dashes."""
    rng = np.random.default_rng(_SEED)
    uri = str(directory / "table")
    schema = pa.schema([pa.field("id", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"})])
    first, *others = [digits(rng.bytes(16 * (row_count // FRAGMENTS))) for _ in range(FRAGMENTS)]
    lance.write_dataset(pa.table([first], schema), uri)
    for each in others:
        lance.write_dataset(pa.table([each], schema), uri, mode="append")
    with_regions(uri, REGIONS)
    version = lance.dataset(uri).version
    # The driver requires that all keys were counted; nothing else is left behind.
    return Prepared(
        directory / "table", {"job": "verify"}, lambda copy: require_equal(lance.dataset(copy).version, version)
    )


def _in_fragments(directory: Path, row_count: int, fragments: int, *, floats: int) -> str:
    rng = np.random.default_rng(_SEED)
    uri, each = str(directory / "table"), row_count // fragments
    lance.write_dataset(rows(np.arange(each), rng, floats=floats), uri)
    _append(
        uri, each, row_count - each, lambda first, count: rows(np.arange(first, first + count), rng, floats=floats),
        fragments - 1,
    )  # fmt: skip
    with_regions(uri, REGIONS)
    return uri


def _append(uri: str, first: int, count: int, make: Callable[[int, int], pa.Table], fragments: int = FRAGMENTS) -> None:
    bounds = [first + count * number // fragments for number in range(fragments + 1)]
    for begin, end in pairwise(bounds):
        lance.write_dataset(make(begin, end - begin), uri, mode="append")


def _texts(first: int, count: int, rng: np.random.Generator) -> pa.Table:
    """Return rows whose texts are made of words."""
    words = np.array([f"word{number}" for number in range(_VOCABULARY)], dtype=object)
    chosen = words[(rng.random((count, _WORDS)) ** 2 * _VOCABULARY).astype(np.int64)]
    made = rows(np.arange(first, first + count), rng, floats=FLOATS)
    return made.set_column(1, made.schema.field("body"), pa.array([" ".join(each) for each in chosen]))
