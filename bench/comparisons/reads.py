"""Reading with unmerged generations: scans against the plain base scan, lookups against pylance's planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot

from bench.harness import Arm, Case, Comparison, Measure, Work
from bench.isolated import LARGEST, run_isolated
from bench.tables import MadeOnce, flush_generations, require_equal, rows, with_regions
from memwal_core.base_table import TableReader
from memwal_core.reader import GenerationSource, ReadPlan
from memwal_core.reader.merged import MergedReader
from memwal_core.table import Table

FLOATS = 128
UPDATED_SHARE = 0.05
_SEED = 5
_ABSENT = 2**40
_FILES = 4
_PAGE_ROWS = 8192
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Made:
    """A table to read.

    Attributes:
        uri: Where it is.
        rows: Keys that exist.
        updated: Keys that unmerged generations hold.
    """

    uri: str
    rows: int
    updated: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadData:
    """What a case reads.

    Attributes:
        base_rows: Rows of the base table.
        table: The table.
    """

    base_rows: int
    table: MadeOnce[Made]


def read_data(base_rows: int, generations: int, *, floats: int = FLOATS, index: bool = False) -> ReadData:
    """Make a case's data: 5 % of the base rows are updated, the same share in each generation."""
    return ReadData(base_rows, MadeOnce(partial(_made, base_rows, generations, floats, index)))


def _made(base_rows: int, generations: int, floats: int, index: bool, directory: Path) -> Made:
    rng = np.random.default_rng(_SEED)
    uri = str(directory / "table")
    # What is written at once becomes one page, which every scan holds whole.
    pieces = rows(np.arange(base_rows), rng, floats=floats).to_reader(max_chunksize=_PAGE_ROWS)
    lance.write_dataset(pieces, uri, max_rows_per_file=max(1, base_rows // _FILES))
    if index:
        lance.dataset(uri).create_scalar_index("id", "BTREE")
    table = with_regions(uri, 1)
    updated = rng.choice(base_rows, int(base_rows * UPDATED_SHARE), replace=False) if generations else np.empty(0, int)
    parts = np.array_split(updated, generations) if generations else []
    flush_generations(table, [rows(part, rng, floats=floats) for part in parts])
    return Made(uri, base_rows, updated)


def _length(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


@contextmanager
def base_scan(case: Case, directory: Path) -> Iterator[Work]:
    """Scan the base table alone, as Lance does it."""
    made = case.data.table.get(directory)
    found: list[int] = []
    yield lambda: found.append(_length(lance.dataset(made.uri).to_batches()))
    require_equal(found, [made.rows])


@contextmanager
def table_scan(case: Case, directory: Path, *, again: bool) -> Iterator[Work]:
    """Scan the newest version of every row, with a table that is opened for it or has been scanned before."""
    made = case.data.table.get(directory)
    known = Table.open(made.uri)
    if again:
        _length(known.scan().batches())
    found: list[int] = []

    def work() -> None:
        table = known if again else Table.open(made.uri)
        found.append(_length(table.scan().batches()))

    yield work
    require_equal(found, [made.rows])


def shard_snapshots(plan: ReadPlan) -> list[ShardSnapshot]:
    """Return what pylance's planners must be told of unmerged generations."""
    snapshots = []
    for region in plan.regions:
        snapshot = ShardSnapshot(str(region.region_id)).with_current_generation(region.manifest.current_generation)
        for flushed in region.manifest.flushed_generations:
            if flushed.generation > region.merged:
                snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
        snapshots.append(snapshot)
    return snapshots


class Unfiltered:
    """Takes every generation for one that may hold the key, as if there were no filters."""

    def may_contain(self, source: GenerationSource, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Always say yes; see ``KeyGuard``."""
        del source
        return np.ones(keys.num_rows, dtype=bool)


def _asked(made: Made, count: int) -> npt.NDArray[np.int64]:
    """Return keys to look up: a third in generations if there are any, a third in the base table, a third nowhere."""
    rng = np.random.default_rng(_SEED + 1)
    old = np.setdiff1d(np.arange(made.rows), made.updated)
    thirds = [rng.choice(old, count), np.full(count, _ABSENT) + rng.integers(0, _ABSENT, count)]
    thirds.append(rng.choice(made.updated, count) if len(made.updated) else rng.choice(old, count))
    return rng.permutation(np.concatenate(thirds))[:count].astype(np.int64)


def _found_of(keys: npt.NDArray[np.int64], find: Callable[[int], pa.Table]) -> int:
    return sum(find(int(key)).num_rows for key in keys)


@contextmanager
def native_lookups(case: Case, directory: Path) -> Iterator[Work]:
    """Look keys up one after another with pylance's planner, made once."""
    made = case.data.table.get(directory)
    planner = LsmPointLookupPlanner(lance.dataset(made.uri), shard_snapshots(Table.open(made.uri).scan().plan))
    yield from _lookups(made, case, lambda key: planner.plan_lookup(pa.array([key], pa.int64())).to_table())


@contextmanager
def view_lookups(case: Case, directory: Path, *, filtered: bool) -> Iterator[Work]:
    """Look keys up one after another in one view, with or without the key filters of flushed MemTables."""
    made = case.data.table.get(directory)
    table = MergedReader(TableReader.open(made.uri), guard=None if filtered else Unfiltered())
    view = table.view()
    yield from _lookups(made, case, lambda key: view.lookup(pa.table({"id": pa.array([key], pa.int64())})))


def _lookups(made: Made, case: Case, find: Callable[[int], pa.Table]) -> Iterator[Work]:
    keys = _asked(made, case.operations)
    found: list[int] = []
    yield lambda: found.append(_found_of(keys, find))
    require_equal(found, [int((keys < _ABSENT).sum())])


def memory_of_scan(uri: str, how: str) -> dict[str, float]:
    """Scan in this process, which ``bench.isolated`` measures, and return the rows."""
    if how == "base":
        return {"rows": float(_length(lance.dataset(uri).to_batches()))}
    return {"rows": float(_length(Table.open(uri).scan().batches()))}


@contextmanager
def scan_memory(case: Case, directory: Path, *, how: str) -> Iterator[Work]:
    """Scan in a process of its own."""
    made = case.data.table.get(directory)
    found: list[float] = []

    def work() -> dict[str, float]:
        measured = run_isolated(
            "bench.comparisons.reads:memory_of_scan", {"uri": made.uri, "how": how}, timeout_s=_TIMEOUT_S
        )
        found.append(measured["rows"])
        return measured

    yield work
    require_equal(found, [float(made.rows)])


def _scan_cases(full: bool) -> list[Case]:
    base_rows = 1_000_000 if full else 250_000
    return [
        Case(f"{number} generations", 1, read_data(base_rows, number), size=float(number)) for number in (0, 4, 16, 64)
    ]


def _lookup_cases(full: bool) -> list[Case]:
    asked = 500 if full else 100
    return [
        Case(f"{number} generations", asked, read_data(100_000, number, floats=16, index=True))
        for number in (0, 1, 4, 16)
    ]


def _memory_cases(full: bool) -> list[Case]:
    sizes = (250_000, 500_000, 1_000_000, 2_000_000) if full else (125_000, 250_000, 500_000)
    return [Case(f"{size:,} rows", 1, read_data(size, 4), size=float(size)) for size in sizes]


SCANS = Comparison(
    name="scan",
    question=f"read every row once: int64 key, text, {FLOATS} floats; {UPDATED_SHARE:.0%} of the rows updated in "
    "unmerged generations",
    operation="scan",
    arms=(
        Arm("base", "the base table alone, opened for it: old versions of the updated rows", base_scan),
        Arm("memwal", "newest versions, nothing known before", partial(table_scan, again=False)),
        Arm("memwal again", "the same by a table that was scanned before", partial(table_scan, again=True)),
    ),
    cases=_scan_cases,
)

LOOKUPS = Comparison(
    name="lookup",
    question="find one key after the other; a third each in generations, in the base table (with a BTREE), nowhere",
    operation="lookup",
    arms=(
        Arm("pylance", "LsmPointLookupPlanner, made once; does not read its filters", native_lookups),
        Arm("memwal", "a view, with key filters", partial(view_lookups, filtered=True)),
        Arm("no filters", "a view, every generation asked", partial(view_lookups, filtered=False)),
    ),
    cases=_lookup_cases,
)

SCAN_MEMORY = Comparison(
    name="scan-memory",
    question=f"peak memory of a process that scans a table of {FLOATS} floats a row, 4 unmerged generations",
    operation="scan",
    arms=(
        Arm("base", "the base table alone", partial(scan_memory, how="base")),
        Arm("memwal", "newest versions", partial(scan_memory, how="memwal")),
    ),
    cases=_memory_cases,
    measure=Measure(LARGEST, "MiB"),
    rounds=1,
)
