"""How costs grow: one thing grows from case to case, everything else stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import Arm, Case, Comparison, Work
from bench.tables import (
    UNSYNCED,
    MadeOnce,
    flush_generations,
    link_copy,
    require_equal,
    rows,
    schema,
    upserts,
    with_regions,
)
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.table import Table

FLOATS = 8

_SEED = 53
_LOOKUPS = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table is like.

    Attributes:
        base_rows: Rows of the base table.
        generations: Generations waiting in each region.
        generation_rows: Rows of each write, spread over the regions.
        regions: Hash buckets.
        indexed: Whether the base has a BTREE index of the key.
    """

    base_rows: int = 100_000
    generations: int = 4
    generation_rows: int = 5_000
    regions: int = 1
    indexed: bool = False

    @property
    def rows(self) -> int:
        """Distinct keys of base and generations."""
        return self.base_rows + self.generations * (self.generation_rows - self.generation_rows // 2)


def make(directory: Path, *, shape: Shape) -> Path:
    """Make the table of a shape."""
    rng = np.random.default_rng(_SEED)
    uri = directory / "table"
    lance.write_dataset(rows(np.arange(shape.base_rows), rng, floats=FLOATS), str(uri))
    if shape.indexed:
        lance.dataset(str(uri)).create_scalar_index("id", "BTREE")
    made = [
        rows(upserts(number, shape.generation_rows, rng, base_rows=shape.base_rows), rng, floats=FLOATS)
        for number in range(shape.generations)
    ]
    flush_generations(with_regions(str(uri), shape.regions), made)
    return uri


@cache
def made(shape: Shape) -> MadeOnce[Path]:
    """Return the table of a shape, shared by all comparisons that need it."""
    return MadeOnce(partial(make, shape=shape))


Act = Callable[[str, Shape], tuple[Callable[[], object], object]]
"""Returns the work on a table, and what it must return."""


@contextmanager
def on_table(case: Case, directory: Path, *, act: Act, changes: bool) -> Iterator[Work]:
    """Work on the table of the case, or on a copy if the work changes it."""
    shape: Shape = case.data
    shared = made(shape).get(directory)
    uri = str(link_copy(shared, directory / "table") if changes else shared)
    work, expected = act(uri, shape)
    found: list[object] = []
    yield lambda: found.append(work())
    require_equal(found[-1], expected)


def _merge(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    def work() -> object:
        report = Table.open(uri, settings=UNSYNCED).run(MergeRequest())
        return report.generations, lance.dataset(uri).count_rows()

    return work, (shape.generations * shape.regions, shape.rows)


def _snapshot(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    del shape
    request = SnapshotRequest(force=True)
    return (lambda: Table.open(uri, settings=UNSYNCED).run(request).outcome.value), "done"


def _catch_up(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    del shape
    Table.open(uri, settings=UNSYNCED).run(MergeRequest())
    return (lambda: Table.open(uri, settings=UNSYNCED).run(CatchupRequest()).outcome.value), "done"


def _gc_plan(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    del shape

    def work() -> object:
        plan = Table.open(uri, settings=UNSYNCED).run(GcRequest()).plan
        return sum(item.objects for item in plan.items) > 0

    return work, True


def _scan(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    request = ScanRequest(columns=("id",))
    return (lambda: Table.open(uri, settings=UNSYNCED).to_arrow(request).num_rows), shape.rows


def _lookup(uri: str, shape: Shape) -> tuple[Callable[[], object], object]:
    chosen = np.random.default_rng(_SEED).choice(shape.base_rows, _LOOKUPS, replace=False)
    keys = pa.table({"id": chosen}, schema=pa.schema([schema(FLOATS).field("id")]))
    return (lambda: Table.open(uri, settings=UNSYNCED).lookup(keys).num_rows), _LOOKUPS


@dataclass(frozen=True, slots=True)
class _Axis:
    """What grows.

    Attributes:
        name: Field of ``Shape``.
        shown: For people.
        fixed: The other fields.
        small: Sizes of the short form.
        full: Sizes of the long form.
    """

    name: str
    shown: str
    fixed: Shape
    small: tuple[int, ...]
    full: tuple[int, ...]

    def cases(self, full: bool) -> Sequence[Case]:
        sizes = self.full if full else self.small
        return [self._case(size) for size in sizes]

    def _case(self, size: int) -> Case:
        values = {name: getattr(self.fixed, name) for name in Shape.__dataclass_fields__} | {self.name: size}
        shape = Shape(**values)
        return Case(f"{size:,} {self.shown}", 1, shape, size=size)


_ROWS = _Axis("base_rows", "base rows", Shape(), (50_000, 200_000), (100_000, 1_000_000, 4_000_000))
_INDEXED = _Axis("base_rows", "base rows", Shape(indexed=True), (50_000, 200_000), (100_000, 1_000_000, 4_000_000))
_GENERATIONS = _Axis("generations", "generations", Shape(generation_rows=1_000), (4, 16), (4, 32, 256))
_REGIONS = _Axis(
    "regions", "regions", Shape(base_rows=20_000, generations=1, generation_rows=20_000), (8, 64), (8, 64, 256, 1_024)
)


def _growth(what: str, verb: str, axis: _Axis, act: Act, *, changes: bool = False) -> Comparison:
    return Comparison(
        name=f"growth-{what}-{axis.name.replace('_', '-')}",
        question=f"{verb} as {axis.shown} grow",
        operation=what,
        arms=(Arm("memwal", f"{verb}, opening the table included", partial(on_table, act=act, changes=changes)),),
        cases=axis.cases,
        rounds=3,
        growth=axis.shown,
    )


GROWTHS: tuple[Comparison, ...] = (
    _growth("merge", "merge", _ROWS, _merge, changes=True),
    _growth("merge", "merge", _GENERATIONS, _merge, changes=True),
    _growth("merge", "merge", _REGIONS, _merge, changes=True),
    _growth("snapshot", "build a snapshot", _REGIONS, _snapshot, changes=True),
    _growth("catchup", "bring a BTREE index up to merged rows", _INDEXED, _catch_up, changes=True),
    _growth("gc", "plan a garbage collection", _GENERATIONS, _gc_plan),
    _growth("gc", "plan a garbage collection", _REGIONS, _gc_plan),
    _growth("scan", "scan the keys, newest rows only", _ROWS, _scan),
    _growth("scan", "scan the keys, newest rows only", _GENERATIONS, _scan),
    _growth("scan", "scan the keys, newest rows only", _REGIONS, _scan),
    _growth("lookup", f"look {_LOOKUPS} keys up", _INDEXED, _lookup),
    _growth("lookup", f"look {_LOOKUPS} keys up", _GENERATIONS, _lookup),
    _growth("lookup", f"look {_LOOKUPS} keys up", _REGIONS, _lookup),
)
