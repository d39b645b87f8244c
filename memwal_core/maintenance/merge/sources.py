"""Reading flushed MemTables: which rows win, and getting only those.

Runs in this process or on a Spark executor. Per region the keys of all its generations are read
first; only then, segment by segment, the winning rows. Memory: the keys plus the winners.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.maintenance.merge.columns import ColumnMapping, MergeTarget, SchemaMismatch, map_columns
from memwal_core.maintenance.merge.generations import open_generation
from memwal_core.maintenance.merge.plan import MergePlan
from memwal_core.memtable.schema import TOMBSTONE_COLUMN
from memwal_core.newest import last_row_per_key, rows_without_key

_SPARSE = 16
"""Below one winner in this many rows, fetching rows one by one beats scanning all of them."""


@dataclass(frozen=True, slots=True)
class RegionTask:
    """What to read of one region.

    Attributes:
        region_id: The region.
        merged: Progress from which the result is valid.
        generations: (generation, address), ascending from ``merged + 1`` without holes.
        target: The base table's side.
        split_deletes: See ``read_region``.
    """

    region_id: RegionId
    merged: int
    generations: tuple[tuple[int, str], ...]
    target: MergeTarget
    split_deletes: bool

    def to_json(self) -> str:
        """Return the task as JSON."""
        values = {
            "region_id": str(self.region_id),
            "merged": self.merged,
            "generations": [list(each) for each in self.generations],
            "target": self.target.to_dict(),
            "split_deletes": self.split_deletes,
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
        )


@dataclass(frozen=True, slots=True)
class RegionWinners:
    """The outcome of consecutive generations of one region, newest row of each key.

    Attributes:
        region_id: The region.
        merged: Progress from which these rows may be applied.
        through: Highest generation contained.
        upserts: Rows in the base schema, keys unique.
        tombstones: Keys to delete, unique, none of them in ``upserts``.
        rows_read: Rows of the generations, older duplicates included.
    """

    region_id: RegionId
    merged: int
    through: int
    upserts: pa.Table
    tombstones: pa.Table
    rows_read: int


class WinnerReader(Protocol):
    """Reads the tasks of one pass, in this process or elsewhere."""

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterable[RegionWinners]:
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
        )
        for region in plan.regions
        if region.take
    ]


class InProcessReader:
    """Reads the regions one after another in this process.

    Args:
        storage_options: For pylance.
    """

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        """Keep the options."""
        self._storage_options = storage_options

    def __call__(self, tasks: Sequence[RegionTask]) -> Iterator[RegionWinners]:
        """Yield the winners of all tasks.

        Raises:
            UnavailableError: Storage failed. Try again.
            ObjectNotFoundError: A generation vanished. Plan anew.
            CorruptionError: A generation contradicts its table.
        """
        for task in tasks:
            yield from read_region(task, self._storage_options)


def read_region(task: RegionTask, storage_options: Mapping[str, str]) -> Iterator[RegionWinners]:
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
    merged = task.merged
    for segment in _segments(task, storage_options):
        winners = _segment_winners(task, merged, segment)
        yield winners
        merged = winners.through


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A generation with its keys in write order."""

    generation: int
    uri: str
    dataset: lance.LanceDataset
    mapping: ColumnMapping
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]
    offsets: npt.NDArray[np.int64]  # row number in write order -> row number in scan order

    def select(self, mask: npt.NDArray[np.bool_]) -> pa.Table:
        return self.keys.filter(pa.array(mask))


def _segments(task: RegionTask, storage_options: Mapping[str, str]) -> Iterator[list[_Keyed]]:
    segment: list[_Keyed] = []
    for generation, uri in task.generations:
        keyed = _read_keys(generation, uri, open_generation(uri, storage_options), task.target)
        if task.split_deletes and _deletes_earlier_rows(keyed, segment, task.target.key):
            yield segment
            segment = []
        segment.append(keyed)
    yield segment


def _deletes_earlier_rows(newer: _Keyed, segment: Sequence[_Keyed], key: Sequence[str]) -> bool:
    if not newer.deleted.any():
        return False
    deleted = newer.select(newer.deleted)
    untouched = deleted
    for older in segment:
        untouched = rows_without_key(untouched, older.select(~older.deleted), key)
    return bool(untouched.num_rows < deleted.num_rows)


def _read_keys(generation: int, uri: str, dataset: lance.LanceDataset, target: MergeTarget) -> _Keyed:
    mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
    if isinstance(mapping, SchemaMismatch):
        raise CorruptionError(
            "a flushed MemTable changed its schema after the plan was made",
            remedy="merge again; the plan then parks the region with this reason",
            uri=uri,
            reason=mapping.reason,
        )
    columns = [mapping.sources[name] for name in target.key]
    wanted = [*columns, TOMBSTONE_COLUMN] if mapping.has_tombstones else columns
    with translated("read the keys of a flushed MemTable", uri):
        rows = dataset.to_table(columns=wanted, with_row_address=True)
    addresses = rows.column("_rowaddr").to_numpy()
    order = np.argsort(addresses, kind="stable").astype(np.int64, copy=False)
    if not bool(np.all(addresses[1:] >= addresses[:-1])):
        rows = rows.take(pa.array(order))
    deleted = np.zeros(rows.num_rows, dtype=bool)
    if mapping.has_tombstones:
        deleted = rows.column(TOMBSTONE_COLUMN).fill_null(False).to_numpy()
    keys = _as_keys(rows.select(columns), target, uri)
    return _Keyed(generation, uri, dataset, mapping, keys, deleted, order)


def _as_keys(rows: pa.Table, target: MergeTarget, uri: str) -> pa.Table:
    for column in rows.columns:
        if column.null_count:
            raise CorruptionError("a flushed MemTable holds a row without a key", remedy="run `memwal doctor`", uri=uri)
    return rows.rename_columns(list(target.key)).cast(pa.schema([target.schema.field(name) for name in target.key]))


def _segment_winners(task: RegionTask, merged: int, segment: Sequence[_Keyed]) -> RegionWinners:
    target = task.target
    keys = pa.concat_tables([keyed.keys for keyed in segment])
    last = last_row_per_key(keys, target.key)
    deleted = np.concatenate([keyed.deleted for keyed in segment])[last]
    starts = np.cumsum([0, *(keyed.keys.num_rows for keyed in segment)])
    live = last[~deleted]
    parts = [target.schema.empty_table()]
    for keyed, start, end in zip(segment, starts[:-1], starts[1:], strict=True):
        wanted = live[np.searchsorted(live, start) : np.searchsorted(live, end)] - start
        if len(wanted):
            parts.append(_rows(keyed, np.sort(keyed.offsets[wanted]), target))
    return RegionWinners(
        region_id=task.region_id,
        merged=merged,
        through=segment[-1].generation,
        upserts=pa.concat_tables(parts),
        tombstones=keys.take(pa.array(last[deleted])),
        rows_read=keys.num_rows,
    )


def _rows(keyed: _Keyed, offsets: npt.NDArray[np.int64], target: MergeTarget) -> pa.Table:
    """Return the rows at these numbers in scan order, in the base schema."""
    columns = [keyed.mapping.sources[name] for name in target.schema.names]
    total = keyed.keys.num_rows
    dataset = keyed.dataset
    with translated("read the rows of a flushed MemTable", keyed.uri):
        if len(offsets) * _SPARSE < total:
            rows = dataset.take(offsets.tolist(), columns=columns)
        else:
            mask = np.zeros(total, dtype=bool)
            mask[offsets] = True
            rows = _filtered(dataset.scanner(columns=columns, scan_in_order=True).to_batches(), mask)
    return _as_base_rows(rows, target, keyed)


def _filtered(batches: Iterable[pa.RecordBatch], mask: npt.NDArray[np.bool_]) -> pa.Table:
    kept: list[pa.RecordBatch] = []
    start = 0
    for batch in batches:
        part = mask[start : start + batch.num_rows]
        start += batch.num_rows
        kept.append(batch if part.all() else batch.filter(pa.array(part)))
    return pa.Table.from_batches(kept)


def _as_base_rows(rows: pa.Table, target: MergeTarget, keyed: _Keyed) -> pa.Table:
    named = rows.rename_columns(target.schema.names)
    for field in target.schema:
        if not field.nullable and named.column(field.name).null_count:
            raise CorruptionError(
                "a flushed MemTable holds NULL in a column that the base table declares NOT NULL",
                remedy="make the base table's column nullable, or correct the writer",
                uri=keyed.uri,
                column=field.name,
                rows=int(pc.sum(named.column(field.name).is_null()).as_py()),
            )
    return named.cast(target.schema)
