"""Little work on large bases: merges beside Lance's merge-insert, lookups beside Lance's own filter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.tables import UNSYNCED, MadeOnce, digits, flush_generations, link_copy, require_equal, with_regions
from memwal_core.format.paths import generation_path
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table

LARGEST_BASE = 20_000_000
INTEGERS, TEXTS = "integers", "texts"
BY_SCAN = "memwal, by scan"
SEARCH = Measure("search", "MiB that the search was to read")

_GENERATIONS = 8
_GENERATION_ROWS = 10_000
_FEW = 1_000
_FRAGMENT_ROWS = 1_000_000
_MIXERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
_FEW_KEYS = 20
"""A lookup of one key is over before a clock has told much of it: so many are done in a row, of other keys each."""
_SEED = 53
_MIB = 1 << 20
_NO_INDEX = UNSYNCED.model_copy(update={"merge": MergeSettings(request_bytes=1 << 40)})

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Large:
    """A large base.

    Attributes:
        uri: Where it is.
        keys: What keys are: integers, or texts of 32 digits.
        rows: How many it has.
        after: How many it has once what waits is merged.
    """

    uri: str
    keys: str
    rows: int
    after: int


@dataclass(frozen=True, slots=True)
class Workload:
    """What waits for its merge.

    Attributes:
        name: For the page.
        keys: ``INTEGERS`` or ``TEXTS``.
        index: On the key, or "".
        is_ordered: Whether rows lie in the order of their keys.
        choose: Returns the numbers of the keys that were written, each once.
    """

    name: str
    keys: str
    index: Literal["BTREE", "ZONEMAP", ""]
    is_ordered: bool
    choose: Callable[[int, np.random.Generator], Numbers]


def _newest(base_rows: int, rng: np.random.Generator) -> Numbers:
    half = _GENERATIONS * _GENERATION_ROWS // 2
    return rng.permutation(np.arange(base_rows - half, base_rows + half))


def _few(base_rows: int, rng: np.random.Generator) -> Numbers:
    return rng.choice(base_rows, _FEW, replace=False)


def _nothing(_base_rows: int, _rng: np.random.Generator) -> Numbers:
    return np.array([], np.int64)


def _anywhere(base_rows: int, rng: np.random.Generator) -> Numbers:
    half = _GENERATIONS * _GENERATION_ROWS // 2
    return rng.permutation(np.concatenate([rng.choice(base_rows, half, replace=False), base_rows + np.arange(half)]))


_WORKLOADS = (
    Workload("80,000 newest integers, zone map", INTEGERS, "ZONEMAP", is_ordered=True, choose=_newest),
    Workload("1,000 random integers, BTREE", INTEGERS, "BTREE", is_ordered=False, choose=_few),
    Workload("1,000 random texts, BTREE", TEXTS, "BTREE", is_ordered=False, choose=_few),
    Workload("80,000 random integers", INTEGERS, "", is_ordered=False, choose=_anywhere),
    Workload("80,000 random texts", TEXTS, "", is_ordered=False, choose=_anywhere),
)


def _keys(kind: str, numbers: Numbers) -> pa.Array:
    if kind == INTEGERS:
        return pa.array(numbers, pa.int64())
    words = numbers.astype(np.uint64)[:, None] * _MIXERS
    return digits(words.astype(">u8").tobytes())


def _rows(kind: str, numbers: Numbers, rng: np.random.Generator) -> pa.Table:
    keys = _keys(kind, numbers)
    key = pa.field("id", keys.type, nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    schema = pa.schema([key, pa.field("number", pa.int64()), pa.field("share", pa.float64())])
    return pa.table([keys, pa.array(numbers, pa.int64()), pa.array(rng.random(len(numbers)))], schema=schema)


def _made(base_rows: int, workload: Workload, directory: Path) -> Large:
    rng = np.random.default_rng(_SEED)
    uri = str(directory / "table")
    numbers = np.arange(base_rows) if workload.is_ordered else rng.permutation(base_rows)
    for begin in range(0, base_rows, _FRAGMENT_ROWS):
        part = _rows(workload.keys, numbers[begin : begin + _FRAGMENT_ROWS], rng)
        lance.write_dataset(part, uri, mode="append" if begin else "create")
    if workload.index:
        lance.dataset(uri).create_scalar_index("id", workload.index)
    written = workload.choose(base_rows, rng)
    generations = [_rows(workload.keys, each, rng) for each in np.array_split(written, _GENERATIONS)]
    flush_generations(with_regions(uri, 1), generations if len(written) else [])
    return Large(uri, workload.keys, base_rows, base_rows + int((written >= base_rows).sum()))


@contextmanager
def _merge_job(case: Case, directory: Path, *, settings: Settings = UNSYNCED) -> Iterator[Work]:
    large: Large = case.data.get(directory)
    uri = str(link_copy(Path(large.uri), directory / "table"))

    def work() -> Sample:
        report = Table.open(uri, settings=settings).run(MergeRequest())
        chosen = [each.search.chosen.read_bytes for each in report.commits if each.search is not None]
        return {SEARCH.name: sum(chosen) / _MIB}

    yield work
    require_equal(lance.dataset(uri).count_rows(), large.after)


@contextmanager
def _merge_insert(case: Case, directory: Path, *, use_index: bool) -> Iterator[Work]:
    """Merge all generations, whose keys are distinct, with one marked merge_insert."""
    large: Large = case.data.get(directory)
    uri = str(link_copy(Path(large.uri), directory / "table"))
    admin = Table.open(uri)
    (region,) = admin.opened.manifests.load_many(admin.opened.manifests.region_ids())
    flushed = region.flushed_generations

    def work() -> None:
        target = lance.dataset(uri)
        paths = [os.path.join(uri, generation_path(region.region_id, each.path)) for each in flushed]
        rows = pa.concat_tables([lance.dataset(path).to_table(columns=target.schema.names) for path in paths])
        merge = target.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(use_index)
        mark = CompactedSsTable(str(region.region_id), flushed[-1].generation)
        merge.mark_sstables_as_compacted([mark]).execute(rows)

    yield work
    require_equal(lance.dataset(uri).count_rows(), large.after)


def _merge_cases(full: bool) -> Sequence[Case]:
    sizes = (1_000_000, 5_000_000, LARGEST_BASE) if full else (200_000,)
    return [
        Case(f"{base_rows:,} rows: {each.name}", 1, MadeOnce(partial(_made, base_rows, each)), size=float(base_rows))
        for each in _WORKLOADS
        for base_rows in sizes
    ]


LARGE_MERGES = Comparison(
    name="large-merge",
    question=f"merge {_GENERATIONS} generations of narrow rows into a large base, `merge_insert` with the reading of "
    "what waits",
    operation="merge",
    arms=(
        Arm("merge_insert", "one marked merge_insert of all rows, use_index(False)",
            partial(_merge_insert, use_index=False)),
        Arm("merge_insert by index", "the same, as it is by default", partial(_merge_insert, use_index=True)),
        Arm("memwal", "the merge job as it is by default, table opening and plan included", _merge_job),
    ),
    cases=_merge_cases,
    rounds=3,
    also=(SEARCH,),
)  # fmt: skip


def _search_cases(full: bool) -> Sequence[Case]:
    base_rows = LARGEST_BASE if full else 200_000
    return [
        Case(f"{base_rows:,} rows: {each.name}", 1, MadeOnce(partial(_made, base_rows, each)))
        for each in _WORKLOADS
        if each.index == "BTREE"
    ]


KEY_SEARCHES = Comparison(
    name="key-search",
    question="merge few random keys into a large base, whose rows are found by reading all keys or by an index",
    operation="merge",
    arms=(
        Arm(BY_SCAN, "the merge job, told that a request costs more than any scan",
            partial(_merge_job, settings=_NO_INDEX)),
        Arm("memwal", "the merge job as it is by default", _merge_job),
    ),
    cases=_search_cases,
    rounds=3,
    also=(SEARCH,),
    in_short=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Asked:
    """Keys to look up in a base that several cases share."""

    base: MadeOnce[Large]
    count: int
    is_cold: bool


Lookup = Callable[[pa.Array], pa.Table]


def _by_filter(uri: str, kind: str) -> Lookup:
    dataset = lance.dataset(uri)
    return lambda keys: dataset.to_table(filter=_one_of(kind, keys))


def _by_take(uri: str, kind: str) -> Lookup:
    dataset = lance.dataset(uri)

    def look(keys: pa.Array) -> pa.Table:
        rows = dataset.to_table(columns=[], filter=_one_of(kind, keys), with_row_id=True)
        return dataset._take_rows(rows.column("_rowid").to_pylist())  # noqa: SLF001 - what its own search uses

    return look


def _one_of(kind: str, keys: pa.Array) -> str:
    shown = (f"'{each}'" if kind == TEXTS else str(each) for each in keys.to_pylist())
    return f"id IN ({', '.join(shown)})"


def _by_view(uri: str, _kind: str) -> Lookup:
    view = Table.open(uri).view()
    return lambda keys: view.lookup(pa.table({"id": keys}))


@contextmanager
def _lookup(case: Case, directory: Path, *, opened: Callable[[str, str], Lookup]) -> Iterator[Work]:
    asked: _Asked = case.data
    large = asked.base.get(directory)
    rng = np.random.default_rng(asked.count)
    warming, *wanted = (
        _keys(large.keys, rng.choice(large.rows, asked.count, replace=False)) for _ in range(case.operations + 1)
    )
    found: list[pa.Table] = []
    look = opened(large.uri, large.keys)
    if not asked.is_cold:
        look(warming)

    def work() -> None:
        found.extend((opened(large.uri, large.keys) if asked.is_cold else look)(keys) for keys in wanted)

    yield work
    require_equal([table.num_rows for table in found], [asked.count] * case.operations)


def _lookup_cases(full: bool) -> Sequence[Case]:
    base_rows = LARGEST_BASE if full else 200_000
    bases = {
        kind: MadeOnce(partial(_made, base_rows, Workload("", kind, "BTREE", is_ordered=False, choose=_nothing)))
        for kind in (INTEGERS, TEXTS)
    }
    return [
        Case(
            f"{base_rows:,} {kind}: {count:,} keys, {'cold' if is_cold else 'warm'}",
            max(1, _FEW_KEYS // count),
            _Asked(base, count, is_cold),
        )
        for kind, base in bases.items()
        for is_cold in (False, True)
        for count in (1, 100, 1_001, 10_000)
    ]


LARGE_LOOKUPS = Comparison(
    name="large-lookup",
    question="look up random keys in a large base with a BTREE on its key, in which everything is merged",
    operation="lookup",
    arms=(
        Arm("lance", "a filter of Lance by the keys", partial(_lookup, opened=_by_filter)),
        Arm("take", "Lance's rows by the addresses that such a filter found", partial(_lookup, opened=_by_take)),
        Arm("memwal", "a lookup in a view; cold, table opening and view included", partial(_lookup, opened=_by_view)),
    ),
    cases=_lookup_cases,
    rounds=5,
)
