"""Reading flushed MemTables: which rows win, and getting only those.

Per region the keys of all its generations are read first; only then the winning rows. Memory: the keys plus the
winners. Where that is little, all rows are read along with the keys, so that each file is asked for once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.deduplicate import deduplicate
from memwal_core.flushed.read import KeyedGeneration, MergeTarget, read_keys, read_whole
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.storage.concurrent import map_concurrently

_WHOLE_BYTES = 16 * 1024 * 1024
"""A region's share of a merge that is read at once; more of it may be rows that no longer count."""

Take = Callable[[str], lance.LanceDataset]
"""Opens a flushed MemTable, or returns it opened."""


@dataclass(frozen=True, slots=True)
class RegionTask:
    """What to read of one region.

    Attributes:
        merged: Progress from which the result is valid.
        generations: (generation, address), ascending from ``merged + 1`` without holes.
        missing: Base columns that the generations lack; if there are any, there is one generation.
        row_bytes: Generation -> about the Arrow size of one of its rows, to bound batches by.
        size_bytes: About the Arrow size of all rows.
    """

    region_id: RegionId
    merged: int
    generations: tuple[tuple[int, str], ...]
    target: MergeTarget
    missing: tuple[str, ...] = ()
    row_bytes: Mapping[int, int] = field(default_factory=dict)
    size_bytes: int = 0

    @property
    def rows(self) -> MergeTarget:
        """What the generations have of the base table's columns."""
        return self.target.without(self.missing)


@dataclass(frozen=True, slots=True)
class MergeWinners:
    """The outcome of consecutive generations of one region, newest row of each key.

    Attributes:
        merged: Progress from which these rows may be applied.
        upserts: Rows in the base schema, keys unique; without the columns that the generations lack.
        tombstones: Keys to delete, unique, none of them in ``upserts``.
        rows_read: Rows of the generations, older duplicates included.
    """

    region_id: RegionId
    merged: int
    through: int
    upserts: pa.Table
    tombstones: pa.Table
    rows_read: int

    @property
    def share(self) -> MergeShare:
        """The same in numbers."""
        return MergeShare(
            self.region_id,
            self.merged,
            self.through,
            self.rows_read,
            self.upserts.num_rows,
            self.tombstones.num_rows,
        )


def region_tasks(plan: MergePlan, target: MergeTarget) -> list[RegionTask]:
    """Return what a plan asks to read, one task per region that takes part."""
    return [
        RegionTask(
            region_id=region.region_id,
            merged=region.merged,
            generations=tuple((taken.generation, taken.uri) for taken in region.take),
            target=target,
            missing=region.take[0].missing,
            row_bytes={taken.generation: taken.size_bytes // max(1, taken.rows) for taken in region.take},
            size_bytes=region.size_bytes,
        )
        for region in plan.regions
        if region.take
    ]


class InProcessReader:
    """Reads several regions at once in this process, since most of the time is spent waiting for requests.

    Args:
        opened: Has what a survey opened.
        concurrency: Generations read at once.
    """

    def __init__(self, opened: OpenedGenerations, concurrency: int) -> None:
        """Keep the parts."""
        self._opened = opened
        self._concurrency = concurrency

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterator[MergeWinners]:
        """Yield the winners of all tasks.

        Raises:
            ObjectNotFoundError: A generation vanished. Plan anew.
            CorruptionError: A generation contradicts its table.
        """
        inside = max(1, self._concurrency // max(1, len(tasks)))
        yield from map_concurrently(lambda task: read_region(task, self._opened.take, inside), tasks, self._concurrency)


def read_region(task: RegionTask, take: Take, concurrency: int = 1) -> MergeWinners:
    """Read a region's generations, newest row of each key.

    Raises:
        ObjectNotFoundError: A generation vanished. Plan anew.
        CorruptionError: A generation contradicts its table.
    """
    target = task.rows
    preread: list[pa.Table | None] = []
    if task.size_bytes <= _WHOLE_BYTES:
        found = map_concurrently(lambda each: _whole(task, *each, take), task.generations, concurrency)
        generations, preread = [keyed for keyed, _ in found], [rows for _, rows in found]
    else:
        generations = keyed_generations(task, take, concurrency)
    newest = deduplicate(generations, target.key)
    wanted = newest.by_source(newest.live)

    def rows_of(each: tuple[KeyedGeneration, npt.NDArray[np.int64], pa.Table | None]) -> list[pa.RecordBatch]:
        keyed, numbers, rows = each
        return list(keyed.batches(numbers, target) if rows is None else keyed.chosen(rows, numbers, target))

    sources = zip(generations, wanted, preread or [None] * len(generations), strict=True)
    batches = [batch for of_one in map_concurrently(rows_of, sources, concurrency) for batch in of_one]
    return MergeWinners(
        region_id=task.region_id,
        merged=task.merged,
        through=generations[-1].generation,
        upserts=pa.Table.from_batches(batches, schema=target.schema),
        tombstones=newest.keys_of(newest.tombstones),
        rows_read=newest.keys.num_rows,
    )


def _whole(task: RegionTask, generation: int, uri: str, take: Take) -> tuple[KeyedGeneration, pa.Table | None]:
    return read_whole(generation, uri, take(uri), task.target, task.rows.schema.names, task.missing)


def keyed_generations(task: RegionTask, take: Take, concurrency: int) -> list[KeyedGeneration]:
    """Read the keys of a region's generations.

    Raises:
        ObjectNotFoundError: A generation vanished. Plan anew.
        CorruptionError: A generation contradicts its table.
    """

    def read(each: tuple[int, str]) -> KeyedGeneration:
        generation, uri = each
        return read_keys(generation, uri, take(uri), task.target, task.missing)

    return map_concurrently(read, task.generations, concurrency)
