"""Reading flushed MemTables: which rows win, and getting only those.

Runs in this process or on a Spark executor. Per region the keys of all its generations are read
first; only then, segment by segment, the winning rows. Memory: the keys plus the winners.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import lance
import pyarrow as pa

from memwal_core.deduplicate import deduplicate, rows_without_key
from memwal_core.flushed.read import KeyedGeneration, MergeTarget, read_keys
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.storage.concurrent import map_concurrently

Take = Callable[[str], lance.LanceDataset]
"""Opens a flushed MemTable, or returns it opened."""


@dataclass(frozen=True, slots=True)
class RegionTask:
    """What to read of one region.

    Attributes:
        region_id: The region.
        merged: Progress from which the result is valid.
        generations: (generation, address), ascending from ``merged + 1`` without holes.
        target: The base table's side.
        split_deletes: See ``read_region``.
        missing: Base columns that the generations lack; if there are any, there is one generation.
        row_bytes: About the Arrow size of a row, to bound batches by.
    """

    region_id: RegionId
    merged: int
    generations: tuple[tuple[int, str], ...]
    target: MergeTarget
    split_deletes: bool
    missing: tuple[str, ...] = ()
    row_bytes: int = 256

    @property
    def rows(self) -> MergeTarget:
        """What the generations have of the base table's columns."""
        return self.target.without(self.missing)

    def to_json(self) -> str:
        """Return the task as JSON."""
        values = {
            "region_id": str(self.region_id),
            "merged": self.merged,
            "generations": [list(each) for each in self.generations],
            "target": self.target.to_dict(),
            "split_deletes": self.split_deletes,
            "missing": list(self.missing),
            "row_bytes": self.row_bytes,
        }
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RegionTask:
        """Rebuild from ``to_json``."""
        values = json.loads(text)
        return cls(
            parse_region_id(values["region_id"]),
            values["merged"],
            tuple((number, uri) for number, uri in values["generations"]),
            MergeTarget.from_dict(values["target"]),
            values["split_deletes"],
            tuple(values["missing"]),
            values["row_bytes"],
        )


@dataclass(frozen=True, slots=True)
class MergeWinners:
    """The outcome of consecutive generations of one region, newest row of each key.

    Attributes:
        region_id: The region.
        merged: Progress from which these rows may be applied.
        through: Highest generation contained.
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


class WinnerReader(Protocol):
    """Reads the tasks of one pass, in this process or elsewhere."""

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterable[MergeWinners]:
        """Yield the winners of all tasks; those of one region in ascending order."""
        ...


def region_tasks(plan: MergePlan, target: MergeTarget, *, split_deletes: bool) -> list[RegionTask]:
    """Return what a plan asks to read, one task per region that takes part."""
    return [
        RegionTask(
            region_id=region.region_id,
            merged=region.merged,
            generations=tuple((taken.generation, taken.uri) for taken in region.take),
            target=target,
            split_deletes=split_deletes,
            missing=region.take[0].missing,
            row_bytes=max(1, region.size_bytes // max(1, region.rows)),
        )
        for region in plan.regions
        if region.take
    ]


class InProcessReader:
    """Reads several regions at once in this process, since most of the time is spent waiting for requests.

    Args:
        storage_options: For pylance.
        concurrency: Generations read at once.
        opened: Has what a survey opened; nothing if None.
    """

    def __init__(
        self, storage_options: Mapping[str, str], concurrency: int = 1, opened: OpenedGenerations | None = None
    ) -> None:
        """Keep the parts."""
        self._opened = opened if opened is not None else OpenedGenerations(storage_options, most=0)
        self._concurrency = concurrency

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterator[MergeWinners]:
        """Yield the winners of all tasks.

        Raises:
            UnavailableError: Storage failed. Try again.
            ObjectNotFoundError: A generation vanished. Plan anew.
            CorruptionError: A generation contradicts its table.
        """
        inside = max(1, self._concurrency // max(1, len(tasks)))

        def read(task: RegionTask) -> list[MergeWinners]:
            return list(_read_region(task, self._opened.take, inside))

        for winners in map_concurrently(read, tasks, self._concurrency):
            yield from winners


def read_region(task: RegionTask, storage_options: Mapping[str, str]) -> Iterator[MergeWinners]:
    """Read a region's generations, newest row of each key.

    With ``task.split_deletes`` the result comes in segments: a new one starts at a generation that
    deletes a key which an earlier generation of the segment wrote. A commit that needs two steps
    for deletes and inserts may then safely meet a rival that merges fewer generations: whatever
    the rival inserts in between, no delete of the segment was meant for it.

    Args:
        task: What to read.
        storage_options: For pylance.

    Yields:
        Segments in ascending order, at least one.

    Raises:
        UnavailableError: Storage failed. Try again.
        ObjectNotFoundError: A generation vanished. Plan anew.
        CorruptionError: A generation contradicts its table.
    """
    return _read_region(task, OpenedGenerations(storage_options, most=0).take, concurrency=1)


def _read_region(task: RegionTask, take: Take, concurrency: int) -> Iterator[MergeWinners]:
    merged = task.merged
    for segment in _segments(task, take, concurrency):
        winners = _segment_winners(task, merged, segment)
        yield winners
        merged = winners.through


def keyed_generations(task: RegionTask, take: Take, concurrency: int) -> list[KeyedGeneration]:
    """Read the keys of a region's generations.

    Args:
        task: What to read.
        take: Opens a generation.
        concurrency: Generations read at once.

    Raises:
        UnavailableError: Storage failed. Try again.
        ObjectNotFoundError: A generation vanished. Plan anew.
        CorruptionError: A generation contradicts its table.
    """

    def read(each: tuple[int, str]) -> KeyedGeneration:
        generation, uri = each
        return read_keys(generation, uri, take(uri), task.target, task.missing)

    return map_concurrently(read, task.generations, concurrency)


def _segments(task: RegionTask, take: Take, concurrency: int) -> Iterator[list[KeyedGeneration]]:
    segment: list[KeyedGeneration] = []
    for keyed in keyed_generations(task, take, concurrency):
        if task.split_deletes and _deletes_earlier_rows(keyed, segment, task.target.key):
            yield segment
            segment = []
        segment.append(keyed)
    yield segment


def _deletes_earlier_rows(newer: KeyedGeneration, segment: Sequence[KeyedGeneration], key: Sequence[str]) -> bool:
    if not newer.deleted.any():
        return False
    deleted = newer.select(newer.deleted)
    untouched = deleted
    for older in segment:
        untouched = rows_without_key(untouched, older.select(~older.deleted), key)
    return bool(untouched.num_rows < deleted.num_rows)


def _segment_winners(task: RegionTask, merged: int, segment: Sequence[KeyedGeneration]) -> MergeWinners:
    target = task.rows
    newest = deduplicate(segment, target.key)
    batches: list[pa.RecordBatch] = []
    for keyed, wanted in zip(segment, newest.by_source(newest.live), strict=True):
        batches.extend(keyed.batches(wanted, target))
    return MergeWinners(
        region_id=task.region_id,
        merged=merged,
        through=segment[-1].generation,
        upserts=pa.Table.from_batches(batches, schema=target.schema),
        tombstones=newest.keys_of(newest.tombstones),
        rows_read=newest.keys.num_rows,
    )
