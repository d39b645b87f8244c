"""Durable puts by several callers at once, which share WAL entries, and puts through pylance as it is by default."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import lance
import pyarrow as pa

from bench.comparisons.writing.puts import put_data, pylance_writer, region_writer
from bench.harness import Arm, Case, Comparison
from memwal_core.writer import RegionWriter

CALLERS = 8


def eight_callers(writer: RegionWriter | lance.mem_wal.ShardWriter, case: Case) -> None:
    """Let each of several threads put its share of the batches, each waiting for its own."""

    def put_share(share: Sequence[pa.Table]) -> None:
        for batch in share:
            writer.put(batch)

    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(put_share, [case.data.batches[caller::CALLERS] for caller in range(CALLERS)]))


def _cases(full: bool) -> list[Case]:
    counts = {1: 800, 100: 800, 1_000: 160, 10_000: 24} if full else {1: 240, 100: 160, 1_000: 40}
    return [
        Case(f"{rows:,} row{'s' if rows > 1 else ''}", batches, put_data(rows, batches))
        for rows, batches in counts.items()
    ]


def _few_cases(_: bool) -> list[Case]:
    return [Case(f"{rows:,} rows", 8, put_data(rows, 8)) for rows in (100, 1_000)]


PUTS_TOGETHER = Comparison(
    name="puts-together",
    question=f"durable puts of {CALLERS} callers at once: int64 key, 40 letters, 128 floats; no MemTable is flushed",
    operation="put",
    arms=(
        Arm(
            "pylance",
            "mem_wal_writer, durable_write, max_wal_flush_interval_ms=1; does not sync",
            partial(pylance_writer, put_all=eight_callers),
        ),
        Arm(
            "memwal",
            "RegionWriter, durable_write, fsync off",
            partial(region_writer, fsync=False, put_all=eight_callers),
        ),
        Arm(
            "memwal+fsync",
            "RegionWriter as it is by default: file and directory synced",
            partial(region_writer, fsync=True, put_all=eight_callers),
        ),
    ),
    cases=_cases,
)

PUTS_BY_DEFAULT = Comparison(
    name="puts-by-default",
    question="one durable put after the other through writers as they are by default: int64 key, text, 128 floats",
    operation="put",
    arms=(
        Arm(
            "pylance",
            "mem_wal_writer as it is: a put waits for a flush every 100 ms; does not sync",
            partial(pylance_writer, interval_ms=None),
        ),
        Arm("memwal", "RegionWriter as it is: file and directory synced", partial(region_writer, fsync=True)),
    ),
    cases=_few_cases,
    rounds=3,
    warm_up=False,
)
