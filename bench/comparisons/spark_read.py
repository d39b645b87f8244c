"""Reading a table through Spark: what it costs beside reading here, and what a second executor gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.comparisons.reads import ReadData, read_data
from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.isolated import LARGEST, PEAK, run_isolated
from bench.tables import require_equal

FLOATS = 32
GENERATIONS = 4
PARTS = 4
"""Base partitions of each read, as many as the base table has files."""

_TIMEOUT_S = 300.0


@contextmanager
def read_whole(case: Case, directory: Path, *, how: str, slots: int | None = None) -> Iterator[Work]:
    """Read all rows in a process of its own.

    Args:
        case: Its data makes the table.
        directory: Of this trial.
        how: Function of ``bench.arms.spark_read``.
        slots: Tasks at once, on Spark.
    """
    data: ReadData = case.data
    made = data.table.get(directory)
    arguments: dict[str, object] = {"uri": made.uri}
    if slots is not None:
        arguments |= {"slots": slots, "partition_rows": data.base_rows // PARTS}
    found: dict[str, float] = {}

    def work() -> Sample:
        found.update(run_isolated(f"bench.arms.spark_read:{how}", arguments, timeout_s=_TIMEOUT_S))
        return found

    yield work
    require_equal(int(found["rows"]), made.rows)


def _cases(full: bool) -> Sequence[Case]:
    sizes = (200_000, 2_000_000) if full else (200_000,)
    return [Case(f"{size:,} base rows", 1, read_data(size, GENERATIONS, floats=FLOATS), size=size) for size in sizes]


SPARK_READS = Comparison(
    name="spark-read",
    question=f"read a whole table with {GENERATIONS} unmerged generations, here and on Spark, {FLOATS} floats a row",
    operation="read",
    arms=(
        Arm("in-process", "the reader's scan, batch by batch", partial(read_whole, how="in_process")),
        Arm("1 slot", "a running local[1] session, second load", partial(read_whole, how="on_spark", slots=1)),
        Arm("2 slots", "a running local[2] session, second load", partial(read_whole, how="on_spark", slots=2)),
    ),
    cases=_cases,
    rounds=2,
    also=(
        Measure("first read", "s of the first load, workers started"),
        Measure(PEAK, "peak MiB, all processes"),
        Measure(LARGEST, "MiB of the largest process"),
    ),
    warm_up=False,
    in_short=False,
)
