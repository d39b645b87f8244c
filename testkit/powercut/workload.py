"""What is recorded: one table's life, from its creation through all jobs, by the real code with real syncs.

Run as ``python -m testkit.powercut.workload DIRECTORY SEED LIFE`` under strace. Each operation and each write begins
and ends with a mark, so that a cut knows what was acknowledged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable, Sources
from memwal_core.clock import SystemClock
from memwal_core.errors import InternalError
from memwal_core.format.paths import table_manifest_path
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import (
    CompactSettings,
    GcSettings,
    IndexSettings,
    Settings,
    WalCollection,
    WriterSettings,
)
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_store import FaultyStore
from testkit.rng import seeded_rng

DISK_NAME = "disk"
"""The directory of the table and its copies: what is recorded."""
TABLE_NAME = "table"
BACKUP_NAME, MOVED_NAME = "backup", "moved"
MARKS_NAME = "marks"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
KEYS = 40
ROUNDS = 2
LIVES = 2
"""Processes that work on the table, one after the other. All but the last are killed, and the machine runs on."""
_CALLS_OF_A_LIFE = (5, 250)
_DAY = timedelta(days=1)
_HOUR_S = 3600.0


def workload_settings(seed: int) -> Settings:
    """Return settings under which every job has something to do; a disk is synced as by default."""
    return Settings(
        writer=WriterSettings.model_validate(
            {"background_flush": False, "new_region_codec": "arrow" if seed % 3 == 2 else "lance"}
        ),
        index=IndexSettings(inline_snapshot_threshold=seed % 2),
        compact=CompactSettings(min_fragments=2, retention_s=_HOUR_S, keep_versions=1),
        gc=GcSettings(
            grace_s=0,
            collect_wal=WalCollection.ALL,
            wal_min_age_s=60,
            orphan_age_s=_HOUR_S,
            manifest_retention=2,
            manifest_min_age_s=0,
            allow_unsafe_retention=True,
        ),
    )


class Workload:
    """One process and its table.

    Args:
        directory: Has the recorded directory; the marks go beside that.
        seed: Decides which rows are written and deleted, and under which settings.
        life: Number of processes that worked on the table before; the first one creates it.
    """

    def __init__(self, directory: Path, seed: int, life: int) -> None:
        """Go on with the file of the marks."""
        self._disk = directory / DISK_NAME
        self._uri = os.fspath(self._disk / TABLE_NAME)
        self._life = life
        self._rng = seeded_rng(seed * LIVES + life)
        self._marks = os.open(directory / MARKS_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._clock = ManualClock(SystemClock().now() + life * _DAY)
        self._settings = workload_settings(seed)
        self._written = 0

    def run(self) -> None:
        """Do everything, or as much of it as the process lives for."""
        if self._life == 0:
            self._do("create", lambda: Table.create(self._uri, SCHEMA, key="id", buckets=2, settings=self._settings))
            lance.dataset(self._uri).create_scalar_index("name", "BTREE")  # By another program, which syncs nothing.
            self._mark(settled=True)
        if self._life < LIVES - 1:
            _die_before_call(self._rng.randrange(*_CALLS_OF_A_LIFE))
        for number in range(ROUNDS):
            self._round(number)
        self._mark(finished=True)

    def _round(self, number: int) -> None:
        table = self._table()
        with (table if number % 2 else self._table(shares=True)).writer(takeover="fence") as writer:
            self._writes(writer, 3)
            self._do("flush", writer.flush)
            self._writes(writer, 2)
        self._do("merge", lambda: table.run(MergeRequest()))
        self._do("catchup", lambda: table.run(CatchupRequest()))
        with self._table(shares=True, has_links=False).writer(takeover="fence") as writer:
            self._writes(writer, 2)
            self._do("flush", writer.flush)
        abandoned = table.writer(takeover="fence")
        self._writes(abandoned, 1)
        if number == ROUNDS - 1:
            self._copies(table)
        self._do("flush_idle", lambda: table.run(FlushRequest(fence=True)))
        self._do("snapshot", lambda: table.run(SnapshotRequest()))
        self._do("merge", lambda: table.run(MergeRequest()))
        self._do("compact", lambda: table.run(CompactRequest(force=True)))
        self._tear()
        self._do("repair", lambda: self._damaged().run(RepairRequest()))
        for _ in range(2):
            self._do("gc", lambda: table.run(GcRequest(dry_run=False)))
        self._do("versions", lambda: table.run(CompactRequest(remove_versions=True)))

    def _copies(self, table: Table) -> None:
        """Make a backup, and make a copy at home that a person has made."""
        backup, moved = (os.fspath(self._disk / f"{name}-{self._life}") for name in (BACKUP_NAME, MOVED_NAME))
        self._do("backup", lambda: table.run(BackupRequest(target=backup)), target=backup)
        shutil.copytree(self._uri, moved, copy_function=_copy)
        self._mark(settled=True, moved=moved)
        self._do("relocate", lambda: self._table(moved).run(RelocateRequest()), target=moved)

    def _table(self, uri: str = "", *, shares: bool = False, has_links: bool = True) -> Table:
        """Open a table.

        Args:
            uri: The recorded one's if empty.
            shares: Whether its flushed MemTables share WAL entries, and pack none.
            has_links: Whether they can do so by links.
        """
        writer = self._settings.writer.model_copy(update={"pack_below_bytes": 0} if shares else {})
        settings = self._settings.model_copy(update={"writer": writer})
        store = FaultyStore(open_store(uri or self._uri, settings=settings.storage))
        store.has_links = has_links
        return Table(OpenTable.of(BaseTable(store, settings=settings, sources=Sources(self._clock, self._rng))))

    def _tear(self) -> None:
        """Leave what is left of another program's commit after a power cut."""
        newest = lance.dataset(self._uri).version
        Path(self._uri, table_manifest_path(newest + 1)).write_bytes(bytes(500))
        self._mark(settled=True, torn=True)

    def _damaged(self) -> Table:
        opened = OpenTable.at(self._uri, settings=self._settings, clock=self._clock, even_if_damaged=True)
        return Table(opened)

    def _writes(self, writer: TableWriter, times: int) -> None:
        for _ in range(times):
            self._written += 1
            rows: dict[int, str | None] = {
                key: f"{key}-{self._life}-{self._written}" for key in self._rng.sample(range(KEYS), 6)
            }
            self._write("put", rows, partial(writer.put, table_of(rows)))
        gone: dict[int, str | None] = dict.fromkeys(self._rng.sample(range(KEYS), 2))
        self._write("delete", gone, partial(writer.delete, table_of(gone).select(["id"])))

    def _write(self, operation: str, rows: dict[int, str | None], act: Callable[[], object]) -> None:
        self._mark(begins=operation, rows=rows)
        act()
        self._mark(ends=operation, rows=rows)

    def _do(self, operation: str, act: Callable[[], Any], **said: str) -> None:
        self._clock.advance(_HOUR_S * 2)
        self._mark(begins=operation, **said)
        outcome = getattr(act(), "outcome", JobOutcome.DONE)
        if outcome is not JobOutcome.DONE:
            raise InternalError("a recorded job did nothing", remedy="give it work", job=operation, outcome=outcome)
        self._mark(ends=operation, **said)

    def _mark(self, **said: object) -> None:
        os.write(self._marks, json.dumps(said).encode())


def table_of(rows: Mapping[int, str | None]) -> pa.Table:
    """Return rows of the recorded table."""
    return pa.table({"id": list(rows), "name": list(rows.values())}, schema=SCHEMA)


def _copy(source: str, target: str) -> None:
    Path(target).write_bytes(Path(source).read_bytes())


def _die_before_call(number: int) -> None:
    """Let this process be killed before it syncs, links, renames or removes for the given time."""
    left = count(number, -1)

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: object, **options: object) -> object:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return called

    for name in ("fsync", "link", "replace", "unlink"):
        setattr(os, name, dying(getattr(os, name)))


if __name__ == "__main__":
    Workload(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).run()
