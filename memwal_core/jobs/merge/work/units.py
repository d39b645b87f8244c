"""Units of work of the single-commit merge, as values that can travel to another process.

A write unit is a group of regions whose winners one process writes as new fragments. A search unit is a group
of base fragments in which one process finds the rows that the winners supersede.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from memwal_core.base_table.commit.row_changes import BaseFragment, balanced, rows_in
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.winners import RegionTask
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.settings import MIB

_UNITS_PER_EXECUTOR = 2
"""More than one, so that an executor that finishes early takes another."""

_LEAST_UNIT_BYTES = 4 * MIB
"""What takes a process less time than it takes another one to begin."""


@dataclass(frozen=True, slots=True)
class WriteUnit:
    """Regions whose winners are written together.

    Attributes:
        version: Base version that gives the schema and, for columns that the generations lack, the values.
        tasks: The regions; either all or none of them lack columns.
        batch_bytes: Arrow bytes of rows held at once.
    """

    number: int
    version: int
    tasks: tuple[RegionTask, ...]
    batch_bytes: int

    @property
    def inherits(self) -> bool:
        """Whether base values are backfilled, so that the result holds for one version only."""
        return any(task.missing for task in self.tasks)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The distinct keys of one unit, written and deleted ones alike.

    Attributes:
        path: Where they are staged, relative to the table; None if they are in memory.
        table: The key columns; None if they are staged.
        rows: How many there are.
        size_bytes: Their Arrow size.
        bounds: Column -> its lowest and highest value; of staged keys, unless there are none.
    """

    path: str | None
    table: pa.Table | None = field(repr=False, compare=False)
    rows: int
    size_bytes: int
    bounds: Mapping[str, tuple[object, object]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class WrittenUnit:
    """A write unit that was carried out; none of it is visible yet."""

    number: int
    version: int
    shares: tuple[MergeShare, ...]
    documents: tuple[str, ...]
    keys: KeyPart

    @property
    def upserts(self) -> int:
        """Rows written."""
        return sum(share.upserts for share in self.shares)

    @property
    def touched(self) -> int:
        """Keys written or deleted."""
        return self.upserts + sum(share.tombstones for share in self.shares)

    @property
    def is_complete(self) -> bool:
        """Whether the files hold as many rows as there are winners."""
        return sum(rows_in(document) for document in self.documents) == self.upserts


@dataclass(frozen=True, slots=True)
class SearchUnit:
    """Base fragments to look keys up in.

    Attributes:
        fragments: The fragments; may be empty.
        key_bytes: Arrow bytes of keys held at once.
        attempt: Names this attempt; the same when the platform repeats it.
        checks_keys: Whether this unit also makes sure that no key occurs in two parts.
        condition: SQL that is true for every row that has one of the keys; empty reads the keys of all rows.
    """

    version: int
    fragments: tuple[BaseFragment, ...]
    keys: tuple[KeyPart, ...]
    key: tuple[str, ...]
    key_bytes: int
    attempt: str
    checks_keys: bool = False
    condition: str = ""


@dataclass(frozen=True, slots=True)
class UnitBounds:
    """How work is divided.

    Attributes:
        unit_bytes: Arrow bytes of regions per write unit; at least one region.
        batch_bytes: Arrow bytes of rows held at once.
        executors: Number of processes that work at once.
    """

    unit_bytes: int
    batch_bytes: int
    executors: int


def write_units(plan: MergePlan, tasks: Sequence[RegionTask], bounds: UnitBounds) -> list[WriteUnit]:
    """Divide the regions of a plan into units of about equal size; a region is never divided."""
    sizes = {region.region_id: region.size_bytes for region in plan.regions}
    limit = bounds.unit_bytes
    if bounds.executors > 1:
        even = math.ceil(plan.size_bytes / (bounds.executors * _UNITS_PER_EXECUTOR))
        limit = min(limit, max(even, _LEAST_UNIT_BYTES))
    groups: list[list[RegionTask]] = []
    for inherits in (False, True):
        room = 0
        for task in tasks:
            if bool(task.missing) is not inherits:
                continue
            if not groups or sizes[task.region_id] > room:
                groups.append([])
                room = limit
            groups[-1].append(task)
            room -= sizes[task.region_id]
        if groups and not inherits:
            groups.append([])
    made = [tuple(group) for group in groups if group]
    return [WriteUnit(number, plan.version, group, bounds.batch_bytes) for number, group in enumerate(made)]


def search_units(
    fragments: Sequence[BaseFragment], common: SearchUnit, executors: int, *, checks_keys: bool
) -> list[SearchUnit]:
    """Divide base fragments into units of about equal size; one of them checks the keys if asked to."""
    groups = list(balanced(fragments, executors * _UNITS_PER_EXECUTOR if executors > 1 else 1))
    if not groups and checks_keys:
        groups = [()]
    return [
        replace(common, fragments=group, checks_keys=checks_keys and number == 0) for number, group in enumerate(groups)
    ]
