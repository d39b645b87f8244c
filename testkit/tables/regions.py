"""Regions of the people table for tests of the writer: made, opened and read back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lance

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.format.paths import generation_path
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import FlushedGeneration, ManifestStore, RegionStatus
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.storage.protocol import ObjectStore
from memwal_core.writer import RegionWriter
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.people import reopened, with_clock

FAST_STORAGE = StorageSettings(fsync=False, retry_wait_s=0)


def writer_settings(**values: object) -> Settings:
    """Return settings of a writer without syncing and without threads, changed by ``values``."""
    return Settings(storage=FAST_STORAGE, writer=WriterSettings.model_validate({"background_flush": False, **values}))


def create_region(table: BaseTable, status: RegionStatus = RegionStatus.SEALED) -> RegionId:
    """Make an empty region by hand."""
    ids = IdSource()
    return ManifestStore(table.store, ids).create(ids.region_id(), status=status).region_id


def open_writer(
    table: BaseTable,
    region_id: RegionId,
    settings: Settings | None = None,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    **more: Any,  # noqa: ANN401 - whatever RegionWriter.open takes
) -> RegionWriter:
    """Open a writer, by default of ``writer_settings``, and over another store or by another clock if one is given."""
    settings = settings if settings is not None else writer_settings()
    chosen = reopened(table, store, settings) if store is not None else table.with_settings(settings)
    return RegionWriter.open(with_clock(chosen, clock) if clock is not None else chosen, region_id, **more)


def flushed_rows(table: BaseTable, region_id: RegionId, record: FlushedGeneration) -> dict[int, str | None]:
    """Return id -> name of a flushed MemTable; None for a tombstone.

    Raises:
        AssertionError: A key occurs twice.
    """
    rows = lance.dataset(table.store.uri_of(generation_path(region_id, record.path))).to_table(columns=["id", "name"])
    found = dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))
    if len(found) != rows.num_rows:
        raise AssertionError(f"generation {record.generation} holds a key twice")
    return found


class Blocked:
    """Calls that are held back until released.

    Attributes:
        reached: Set when the first call waits.
        release: Set it to let all calls go on.
    """

    def __init__(self) -> None:
        """Hold everything back."""
        self.reached = threading.Event()
        self.release = threading.Event()

    def hold(self, _: Call) -> None:
        """Wait until released."""
        self.reached.set()
        self.release.wait()


@contextmanager
def blocking(store: FaultyStore, *operations: str, path: Callable[[str], bool] = lambda _: True) -> Iterator[Blocked]:
    """Hold matching calls back, before they have any effect, until released or the end of the block."""
    blocked = Blocked()
    store.add(Rule(blocked.hold, Moment.BEFORE, frozenset(operations), path, times=None))
    try:
        yield blocked
    finally:
        blocked.release.set()
