"""What Spark costs and gains, and one way to commit against the other, with the memory of each process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.isolated import LARGEST, PEAK, run_isolated
from bench.tables import MadeOnce, link_copy, require_equal, rows, with_regions
from memwal_core.writer import TableWriter

FLOATS = 32
BASE_ROWS = 1_000_000
REGIONS = 4
GENERATIONS = 4

_SEED = 43
_TIMEOUT_S = 180.0
_MEMORY = (Measure(PEAK, "peak MiB, all processes"), Measure(LARGEST, "MiB of the largest process"))
_WRITTEN = Measure("written MiB", "MiB written")


class _Flushed:
    """A base table whose regions have generations waiting, and how many rows it must have in the end."""

    def __init__(self, directory: Path, *, base_rows: int, source_rows: int, tombstones: int) -> None:
        rng = np.random.default_rng(_SEED)
        self.uri = directory / "table"
        lance.write_dataset(rows(np.arange(base_rows), rng, floats=FLOATS), str(self.uri))
        table = with_regions(str(self.uri), REGIONS)
        size = source_rows // GENERATIONS
        alive = np.ones(base_rows + source_rows, dtype=bool)
        alive[base_rows:] = False
        with TableWriter.open(table) as writer:
            for number in range(GENERATIONS):
                old = rng.choice(base_rows, min(size // 2, base_rows), replace=False)
                first_new = base_rows + number * size
                new = np.arange(first_new, first_new + size - len(old))
                writer.put(rows(rng.permutation(np.concatenate([old, new])), rng, floats=FLOATS))
                alive[old] = alive[new] = True
                if tombstones:
                    gone = rng.choice(base_rows, tombstones // GENERATIONS, replace=False)
                    writer.delete(pa.table({"id": gone}, schema=pa.schema([table.state().schema.field("id")])))
                    alive[gone] = False
                writer.flush()
        self.rows = int(alive.sum())


@contextmanager
def merged(case: Case, directory: Path, *, how: str, **arguments: object) -> Iterator[Work]:
    """Merge a copy of the table in a process of its own.

    Args:
        case: Its data makes the table.
        directory: Of this trial.
        how: Function of ``bench.arms.merge``.
        **arguments: Its further arguments.
    """
    flushed: _Flushed = case.data.get(directory)
    uri = link_copy(flushed.uri, directory / "table")
    before = _bytes_below(uri)

    def work() -> Sample:
        found = run_isolated(f"bench.arms.merge:{how}", {"uri": str(uri), **arguments}, timeout_s=_TIMEOUT_S)
        return {**found, "written MiB": (_bytes_below(uri) - before) / 2**20}

    yield work
    require_equal(lance.dataset(str(uri)).count_rows(), flushed.rows)


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _case(name: str, *, base_rows: int, source_rows: int, tombstones: int = 0) -> Case:
    made = MadeOnce(partial(_Flushed, base_rows=base_rows, source_rows=source_rows, tombstones=tombstones))
    return Case(name, 1, made, size=source_rows)


def _spark_cases(full: bool) -> Sequence[Case]:
    sizes = (10_000, 200_000, 2_000_000) if full else (50_000,)
    base = BASE_ROWS if full else BASE_ROWS // 5
    return [
        _case(f"{size:,} rows into {base:,}", base_rows=base, source_rows=size, tombstones=size // 100)
        for size in sizes
    ]


def _strategy_cases(full: bool) -> Sequence[Case]:
    sizes = (10_000, 100_000, 1_000_000, 4_000_000) if full else (10_000, 100_000)
    base = BASE_ROWS if full else BASE_ROWS // 5
    return [
        _case(f"{size:,} rows{label}", base_rows=base, source_rows=size, tombstones=size // share if share else 0)
        for label, share in (("", 0), (", 2 % tombstones", 50))
        for size in sizes
    ]


SPARK = Comparison(
    name="spark",
    question=f"merge {GENERATIONS} generations of {REGIONS} regions with 1 % tombstones, here and on Spark, "
    f"{FLOATS} floats a row",
    operation="merge",
    arms=(
        Arm("in-process", "units in one process", partial(merged, how="in_process", way="units")),
        Arm("driver", "local[2] is there, and `auto` decides", partial(merged, how="on_spark", slots=2, min_mib=64)),
        Arm("1 slot", "a running local[1] session does the work", partial(merged, how="on_spark", slots=1, min_mib=0)),
        Arm("2 slots", "a running local[2] session does the work", partial(merged, how="on_spark", slots=2, min_mib=0)),
    ),
    cases=_spark_cases,
    rounds=2,
    also=(Measure("session start", "s to start the session"), *_MEMORY),
    warm_up=False,
)

STRATEGIES = Comparison(
    name="strategies",
    question=f"one process merges {GENERATIONS} generations of {REGIONS} regions, {FLOATS} floats a row",
    operation="merge",
    arms=(
        Arm(
            "join",
            "Lance's merge-insert prepares upserts; units prepare passes with tombstones",
            partial(merged, how="in_process", way="join"),
        ),
        Arm(
            "units",
            "fragments and deletion vectors prepared in units",
            partial(merged, how="in_process", way="units"),
        ),
    ),
    cases=_strategy_cases,
    rounds=3,
    also=(*_MEMORY, _WRITTEN),
    warm_up=False,
)
