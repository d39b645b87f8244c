"""Streaming upserts, the whole loop: from the first put until the base table holds everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import deltalake
import lance
import numpy as np
import pyarrow as pa

from bench.harness import Arm, Case, Comparison, Measure, Sample, Work
from bench.isolated import LARGEST, PEAK, run_isolated
from bench.tables import MadeOnce, link_copy, require_equal, rows, schema, upserts

FLOATS = 64
BATCH_ROWS = 500
DELTA_BATCHES = 5
"""Batches that Delta really merges; its time for all is extrapolated, and the arm's name says so."""

_SEED = 41
_DELTA = "loop_delta:delta_merge"
_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class LoopData:
    """What the trials of a case share, below one directory.

    Attributes:
        lance_base: The base as a Lance table.
        delta_base: The same as a Delta table.
        batches: Arrow file with one record batch per batch.
        count: Number of batches.
        memtable_rows: Rows after which a MemTable is flushed.
    """

    lance_base: Path
    delta_base: Path
    batches: Path
    count: int
    memtable_rows: int


def make_loop(directory: Path, *, base_rows: int, count: int, generations: int) -> LoopData:
    """Write the base tables and the batches."""
    rng = np.random.default_rng(_SEED)
    base = rows(np.arange(base_rows), rng, floats=FLOATS)
    lance.write_dataset(base, str(directory / "lance"))
    deltalake.write_deltalake(str(directory / "delta"), base)
    with pa.ipc.new_file(str(directory / "batches.arrow"), schema(FLOATS)) as written:
        for number in range(count):
            batch = rows(upserts(number, BATCH_ROWS, rng, base_rows=base_rows), rng, floats=FLOATS)
            written.write_table(batch.combine_chunks())
    return LoopData(
        directory / "lance", directory / "delta", directory / "batches.arrow", count, BATCH_ROWS * count // generations
    )


@contextmanager
def loop(case: Case, directory: Path, *, how: str, cap: int | None = None) -> Iterator[Work]:
    """Apply all batches in a process of its own; afterwards compare every key and text with what must be there.

    Args:
        case: Its data makes the tables.
        directory: Of this trial.
        how: ``module:function`` inside ``bench``.
        cap: Batches really applied; time and bytes are extrapolated to all.
    """
    data: LoopData = case.data.get(directory)
    is_delta = how == _DELTA
    source = data.delta_base if is_delta else data.lance_base
    uri = link_copy(source, directory / "table")
    before = _bytes_below(uri)
    count = data.count if cap is None else min(cap, data.count)

    def work() -> Sample:
        arguments = {
            "uri": str(uri),
            "batches": str(data.batches),
            "count": count,
            "memtable_rows": data.memtable_rows,
        }
        found = run_isolated(f"bench.arms.{how}", arguments, timeout_s=_TIMEOUT_S)
        whole = data.count / count
        written_mib = (_bytes_below(uri) - before) / 2**20
        return {
            **found,
            "seconds": found["seconds"] * whole,
            "durable": found["durable"] * whole,
            "written MiB": written_mib * whole,
        }

    yield work
    columns = ["id", "body"]
    read = (
        deltalake.DeltaTable(str(uri)).to_pyarrow_table(columns=columns)
        if is_delta
        else lance.dataset(str(uri)).to_table(columns=columns)
    )
    expected = _expected(data, count)
    found = read.sort_by("id").cast(expected.schema)
    require_equal((found.num_rows, found.equals(expected)), (expected.num_rows, True))


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _expected(data: LoopData, count: int) -> pa.Table:
    """Replay the batches over the base with plain NumPy: the last text of each key."""
    base = lance.dataset(str(data.lance_base)).to_table(columns=["id", "body"])
    with pa.memory_map(str(data.batches)) as source:
        read = pa.ipc.open_file(source)
        later = [pa.Table.from_batches([read.get_batch(number)]).select(["id", "body"]) for number in range(count)]
    everything = pa.concat_tables([base, *later])
    ids = everything.column("id").to_numpy()
    _, last = np.unique(ids[::-1], return_index=True)
    # np.unique has sorted the keys, and the rows follow it.
    return everything.take(pa.array(len(ids) - 1 - last)).combine_chunks()


def _cases(full: bool) -> Sequence[Case]:
    sizes = ((1_000_000, 200, 8),) if full else ((100_000, 40, 4),)
    return [
        Case(
            f"{base_rows:,} rows, {count} x {BATCH_ROWS} upserts",
            1,
            MadeOnce(partial(make_loop, base_rows=base_rows, count=count, generations=generations)),
        )
        for base_rows, count, generations in sizes
    ]


DELTA_ARM = f"deltalake, {DELTA_BATCHES} batches extrapolated"

LOOP = Comparison(
    name="loop",
    question=f"upserts in batches of {BATCH_ROWS}, half of the keys new, until all are in the base table: "
    f"int64 key, text, {FLOATS} floats",
    operation="loop",
    arms=(
        Arm(
            "merge_insert",
            "one merge_insert per batch, use_index(False); not synced",
            partial(loop, how="loop:merge_insert"),
        ),
        Arm(
            "pylance writer",
            "mem_wal_writer, durable_write, max_wal_flush_interval_ms=1, then one marked merge_insert per generation; "
            "not synced",
            partial(loop, how="loop:pylance_writer"),
        ),
        Arm(
            "memwal",
            "TableWriter with fsync, then the merge job in the same process",
            partial(loop, how="loop:memwal"),
        ),
        Arm(
            "memwal+spark",
            "the same, merged through a local[2] session that is running already",
            partial(loop, how="loop_spark:on_running_session"),
        ),
        Arm(
            "memwal+spark-submit",
            "the same, merged by `spark-submit --master local[2] jobs/merge.py`, start of Spark included",
            partial(loop, how="loop_spark:by_spark_submit"),
        ),
        Arm(
            DELTA_ARM,
            f"one merge per batch of the deltalake package, copy on write; {DELTA_BATCHES} batches are merged, and "
            "time and bytes are multiplied up to all batches; not synced",
            partial(loop, how=_DELTA, cap=DELTA_BATCHES),
        ),
    ),
    cases=_cases,
    rounds=3,
    also=(
        Measure("durable", "s to durable"),
        Measure("written MiB", "MiB written"),
        Measure(PEAK, "peak MiB, all processes"),
        Measure(LARGEST, "MiB of the largest process"),
    ),
    warm_up=False,
)
