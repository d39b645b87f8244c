"""A reader that runs for the whole length of a maintenance storm never sees a wrong row.

A writer with several callers, every job in a process of its own and without a pause, and this process,
which reads and compares. ``STORM_SECONDS`` makes it longer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.errors import UnavailableError
from memwal_core.reader import Consistency
from memwal_core.table import Table
from testkit.horizon import Horizon, hurried_settings
from testkit.processes.job import JobSite, start_job
from testkit.processes.writer import Acknowledged, WriterProcess, WriterSite, start_writer
from testkit.s3_server import s3_server
from testkit.simulation.view import lsm_view
from testkit.tables.people import make_people_table
from testkit.tables.readable import as_model, keys_of

JOBS = ("merge", "snapshot", "catchup", "compact", "gc")
KEYS = 24
WRITES = 20
LONGEST_S = 600.0
"""How long a right storm may take on a busy machine until everything in it has happened."""


class Watcher:
    """Reads again and again, in turn by scan and by lookup, and compares with what the writer says."""

    def __init__(self, table: Table, writer: WriterProcess, horizon: Horizon) -> None:
        self.known = Acknowledged()
        self.reads: Counter[str] = Counter()
        self._horizon, self._place = horizon, horizon.enter()
        self._table = table
        self._writer = writer

    def look(self) -> None:
        self._horizon.begin(self._place)
        self.known.hear(self._writer.said())
        began, tried = self.known.moment(), len(self.known.tried)
        by_scan = self.reads.total() % 2 == 0
        try:
            rows = self._table.to_arrow() if by_scan else self._table.lookup(keys_of(*range(KEYS)), ["id", "name"])
        except UnavailableError:
            self.reads["to be repeated"] += 1
            return
        self.known.hear(self._writer.said())
        found = as_model(rows)
        possible = began if by_scan else {key: values for key, values in began.items() if key < KEYS}
        wrong = self.known.wrong_since(possible, tried, found)
        if not by_scan:
            wrong = {key: each for key, each in wrong.items() if key < KEYS}
        assert wrong == {}
        self.reads["scan" if by_scan else "lookup"] += 1

    def has_seen(self, table: BaseTable) -> bool:
        """Whether there were reads of both kinds, many writes, and a merge."""
        return min(self.reads["scan"], self.reads["lookup"]) > 0 and self.known.writes > WRITES and has_merged(table)


def storm(uri: str, options: Mapping[str, str] | None, codec: str, seconds: float) -> Watcher:
    chosen = hurried_settings(60, grace_s=3, orphan_age_s=20, codec=codec, max_generations=8)
    table = make_people_table(uri, buckets=2, storage_options=options, settings=chosen)
    table.dataset().create_scalar_index("score", "BTREE")
    site = JobSite(uri, chosen, options, keep_versions_s=15)
    clock = SystemClock()
    horizon = Horizon()
    writer = start_writer(WriterSite(uri, chosen, options), 1)
    reader = Table.open(uri, storage_options=options, consistency=Consistency.DURABLE)
    watcher = Watcher(reader, writer, horizon)
    jobs = [start_job(site, job, horizon) for job in JOBS]
    begin = clock.monotonic()
    # Rivals and a busy machine can keep the first merge waiting; without one it would be no storm.
    while (lasted := clock.monotonic() - begin) < seconds or (not watcher.has_seen(table) and lasted < LONGEST_S):
        watcher.look()
    for job in jobs:
        job.kill()
    watcher.known.note(writer.kill())
    assert watcher.known.wrong(lsm_view(table)) == {}
    assert has_merged(table)
    return watcher


def has_merged(table: BaseTable) -> bool:
    progress = table.state().require_details().merged_generations
    return any(generation > 0 for generation in progress.values())


def _seconds(default: float) -> float:
    return float(os.environ.get("STORM_SECONDS") or default)


@pytest.mark.slow
@pytest.mark.req("RD-06", "RD-13", "RD-15", "GC-29")
@pytest.mark.parametrize("codec", ["lance", "arrow"])
def test_reader_never_sees_a_wrong_row_in_a_maintenance_storm(codec: str, tmp_path: Path) -> None:
    watcher = storm(str(tmp_path / "t"), None, codec, _seconds(12))

    assert min(watcher.reads["scan"], watcher.reads["lookup"]) > 0
    assert watcher.reads["to be repeated"] <= watcher.reads.total() / 10
    assert watcher.known.writes > WRITES


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.req("RD-06", "RD-13", "RD-15", "GC-29")
def test_on_s3_reader_never_sees_a_wrong_row_in_a_maintenance_storm() -> None:
    with s3_server() as server:
        options = dict(server.storage_options)
        watcher = storm(server.uri("bucket/storm/people.lance"), options, "lance", _seconds(15))

    assert min(watcher.reads["scan"], watcher.reads["lookup"]) > 0
    assert watcher.known.writes > WRITES
