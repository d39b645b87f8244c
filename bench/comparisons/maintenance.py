"""Snapshots of many regions, garbage collection plans of many objects, and the memory of a merge."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from bench.harness import Arm, Case, Comparison, Measure, Work
from bench.tables import require_equal
from memwal_core.base_table import BaseTable, read_snapshot
from memwal_core.format.paths import (
    MEM_WAL_DIRECTORY,
    generation_directory_name,
    generation_path,
    manifest_path,
    wal_entry_path,
)
from memwal_core.ids import IdSource
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import MIB, Settings, StorageSettings, WriterSettings
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.faulty_store import FaultyStore

DIMENSION = 256
GENERATION_ROWS = 16_384
GENERATION_MIB = GENERATION_ROWS * (4 * DIMENSION + 8) // MIB
MERGE_MIB = 64
"""Bound of one commit of the measured merge."""

_FILES = 5
_BIG = 2**40
_SETTINGS = Settings(
    storage=StorageSettings(fsync=False),
    writer=WriterSettings(max_memtable_bytes=_BIG, max_memtable_rows=_BIG),
)
_WORKER = Path(__file__).parents[1] / "arms" / "merge_memory.py"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)


Made = tuple[Table, FaultyStore]


def _empty_table(directory: Path, buckets: int = 1) -> Made:
    """Make a table without rows, over a store that counts requests."""
    uri = str(directory / "table")
    lance.write_dataset(SCHEMA.empty_table(), uri)
    plain = BaseTable.open(uri, settings=_SETTINGS)
    plain.create_mem_wal_index([bucket_spec(1, "id", plain.state().field_ids, buckets)])
    store = FaultyStore(plain.store)
    return Table(OpenTable.of(BaseTable.open(uri, store=store, settings=_SETTINGS))), store


class _Shared:
    """A table that is made once for all trials of a case, since making it takes far longer than they do."""

    def __init__(self) -> None:
        self._made: Made | None = None

    def get(self, case: Case, scratch: Path, make: Callable[[Case, Path], Made]) -> Made:
        """Return the table, made beside the directories of the trials at the first call."""
        if self._made is None:
            directory = Path(tempfile.mkdtemp(dir=scratch))
            self._made = make(case, directory)
        return self._made


def _with_regions(case: Case, directory: Path) -> Made:
    admin, store = _empty_table(directory)
    ids = IdSource()
    manifests = ManifestStore(store.inner, ids, settings=_SETTINGS.storage)
    for _ in range(case.operations):
        manifests.create(ids.region_id(), status=RegionStatus.SEALED)
    return admin, store


@contextmanager
def manifest_gets(case: Case, directory: Path, *, counted: bool) -> Iterator[Work]:
    """Only read the newest manifest of each region, by a name that is known beforehand."""
    admin, store = case.data.get(case, directory.parent, _with_regions)
    paths = [manifest_path(region_id, 1) for region_id in admin.opened.manifests.region_ids()]
    store.calls.clear()
    read: list[bytes] = []

    def work() -> float | None:
        read.extend(map_concurrently(store.get, paths, _SETTINGS.storage.concurrency))
        return float(len(store.calls)) if counted else None

    yield work
    require_equal(len(read), case.operations)


@contextmanager
def snapshot_build(case: Case, directory: Path, *, counted: bool) -> Iterator[Work]:
    """List the regions, find each newest manifest and the end of its WAL, and publish the snapshot."""
    admin, store = case.data.get(case, directory.parent, _with_regions)
    store.calls.clear()

    def work() -> float | None:
        admin.run(SnapshotRequest(force=True))
        return float(len(store.calls)) if counted else None

    yield work
    snapshot = read_snapshot(admin.base, admin.base.state())
    require_equal(0 if snapshot is None else snapshot.num_rows, case.operations)


def _with_objects(case: Case, directory: Path) -> Made:
    """Make a region with half as many WAL entries as objects, and directories that nothing records."""
    admin, store = _empty_table(directory)
    ids = IdSource()
    region_id = ids.region_id()
    ManifestStore(store.inner, ids, settings=_SETTINGS.storage).create(region_id, status=RegionStatus.SEALED)
    half = case.operations // 2
    for wal_id in range(1, half + 1):
        store.inner.put(wal_entry_path(region_id, wal_id, ".lance"), b"x")
    for number in range(half // _FILES):
        name = generation_directory_name(f"{number:08x}", number + 1)
        for part in range(_FILES):
            store.inner.put(f"{generation_path(region_id, name)}/data/{part}", b"x")
    return admin, store


@contextmanager
def listing(case: Case, directory: Path) -> Iterator[Work]:
    """Only list everything below the regions."""
    _, store = case.data.get(case, directory.parent, _with_objects)
    found: list[str] = []
    yield lambda: found.extend(info.path for info in store.list_objects(MEM_WAL_DIRECTORY))
    require_equal(len(found) >= case.operations, True)


@contextmanager
def gc_plan(case: Case, directory: Path) -> Iterator[Work]:
    """Plan a garbage collection: every object with the rule that frees it or the gate that holds it."""
    admin, _ = case.data.get(case, directory.parent, _with_objects)
    seen: list[int] = []
    yield lambda: seen.append(sum(item.objects for item in admin.run(GcRequest()).plan.items))
    require_equal(seen[0] >= case.operations, True)


@contextmanager
def merge_process(case: Case, directory: Path, *, how: str) -> Iterator[Work]:
    """Merge all generations in a process of its own, and return its peak memory."""
    uri = str(directory / "table")
    lance.write_dataset(_rows(0, -1.0), uri)
    table = BaseTable.open(uri, settings=_SETTINGS)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    with TableWriter.open(table) as writer:
        for number in range(case.data):
            writer.put(_rows(number * GENERATION_ROWS // 2, float(number)))
            writer.flush()

    def work() -> float:
        command = [sys.executable, str(_WORKER), how, uri, str(MERGE_MIB)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    yield work
    require_equal(lance.dataset(uri).count_rows(), (case.data + 1) * GENERATION_ROWS // 2)


def _rows(first: int, value: float) -> pa.Table:
    values = pa.array(np.full(GENERATION_ROWS * DIMENSION, value, dtype=np.float32))
    ids = pa.array(np.arange(first, first + GENERATION_ROWS))
    return pa.Table.from_arrays([ids, pa.FixedSizeListArray.from_arrays(values, DIMENSION)], schema=SCHEMA)


def _region_cases(full: bool) -> Sequence[Case]:
    del full
    return [Case(f"{count:,} regions", count, _Shared()) for count in (10, 100, 1_000)]


def _object_cases(full: bool) -> Sequence[Case]:
    return [
        Case(f"{count:,} objects", count, _Shared()) for count in ((1_000, 10_000, 50_000) if full else (1_000, 10_000))
    ]


def _memory_cases(full: bool) -> Sequence[Case]:
    counts = (8, 16, 32, 64) if full else (4, 16)
    return [
        Case(f"{count * GENERATION_MIB} MiB of generations", 1, count, size=count * GENERATION_MIB) for count in counts
    ]


def _snapshot_arms(*, counted: bool) -> tuple[Arm, ...]:
    return (
        Arm(
            "GETs",
            f"the newest manifests alone, names known, {_SETTINGS.storage.concurrency} at once; finds nothing out",
            partial(manifest_gets, counted=counted),
        ),
        Arm(
            "memwal",
            "the snapshot job: list, newest manifests, WAL ends, publication",
            partial(snapshot_build, counted=counted),
        ),
    )


SNAPSHOTS = Comparison(
    name="snapshot",
    question="build and publish the snapshot of many regions on a local disk",
    operation="region",
    arms=_snapshot_arms(counted=False),
    cases=_region_cases,
)

SNAPSHOT_REQUESTS = Comparison(
    name="snapshot-requests",
    question="requests of a snapshot build, those of Lance itself left out",
    operation="region",
    arms=_snapshot_arms(counted=True),
    cases=_region_cases,
    measure=Measure("requests", "requests"),
    rounds=1,
)

GC_PLANS = Comparison(
    name="gc-plan",
    question="plan a garbage collection of one region on a local disk",
    operation="object",
    arms=(
        Arm("list", "everything below the regions listed once; decides nothing", listing),
        Arm("memwal", "the garbage collection job, dry run", gc_plan),
    ),
    cases=_object_cases,
    rounds=3,
)

MERGE_MEMORY = Comparison(
    name="merge-memory",
    question=f"peak memory of the process that merges generations of {GENERATION_MIB} MiB",
    operation="merge",
    arms=(
        Arm(
            "merge_insert",
            "one marked merge_insert of all generations, newest rows kept",
            partial(merge_process, how="merge_insert"),
        ),
        Arm("memwal", f"the merge job with {MERGE_MIB} MiB per commit", partial(merge_process, how="memwal")),
    ),
    cases=_memory_cases,
    measure=Measure("peak MiB", "peak MiB"),
    rounds=1,
    growth="MiB of generations",
)
