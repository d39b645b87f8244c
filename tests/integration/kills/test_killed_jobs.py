"""Job processes killed with SIGKILL at random moments, a hundred times, on a table that is being written."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.admin import GcRequest, TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.settings import CompactSettings, GcSettings, IndexSettings, Settings, StorageSettings, WriterSettings
from memwal_core.testing.job_processes import TAKES_OVER, JobSite, job_process_server, run_once, start_job
from memwal_core.testing.simulation.view import lsm_view
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter

JOBS = ("merge", "snapshot", "catchup", "gc", "compact")
ROUNDS = 50
CHECK_EVERY = 5
KEYS = 60
SETTINGS = Settings(
    storage=StorageSettings(fsync=False),
    # Real ages on a real clock, far beyond what any flush, merge or write here takes.
    writer=WriterSettings(max_memtable_rows=40, epoch_check_interval_s=1),
    index=IndexSettings(inline_snapshot_threshold=1),
    compact=CompactSettings(min_fragments=2),
    gc=GcSettings(
        grace_s=1,
        collect_wal=True,
        wal_min_age_s=8,
        orphan_age_s=8,
        manifest_retention=2,
        manifest_min_age_s=8,
        allow_unsafe_retention=True,
    ),
)


class Stream:
    """The one writer of the table, and what it was told is durable."""

    def __init__(self, table: BaseTable, rng: random.Random) -> None:
        self.writer = TableWriter.open(table, settings=SETTINGS)
        self.rows: dict[int, str] = {}
        self._rng = rng
        self._number = 0

    def write_for(self, seconds: float) -> None:
        clock = SystemClock()
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            self._number += 1
            keys = self._rng.sample(range(KEYS), k=6)
            if self._number % 5 == 0:
                self.writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
                for key in keys:
                    self.rows.pop(key, None)
            else:
                self.writer.put(people(*keys, name=f"v{self._number}"))
                self.rows |= dict.fromkeys(keys, f"v{self._number}")
            if self._number % 4 == 0:
                self.writer.flush()


def require_sound(table: BaseTable, rows: dict[int, str]) -> dict[str, int]:
    """Nothing lost, doubled or resurrected; indexes tell the truth; progress that is recorded is real."""
    assert lsm_view(table) == rows
    dataset = table.dataset()
    everything = dataset.to_table(columns=["id", "name", "score"]).to_pydict()
    for limit in (KEYS / 3, KEYS):
        found = dataset.to_table(columns=["id"], filter=f"score < {limit}").column("id").to_pylist()
        scanned = [key for key, score in zip(everything["id"], everything["score"], strict=True) if score < limit]
        assert sorted(found) == sorted(scanned)
    for name in sorted(set(everything["name"]))[:5]:
        found = dataset.to_table(columns=["id"], full_text_query=name).column("id").to_pylist()
        scanned = [key for key, value in zip(everything["id"], everything["name"], strict=True) if value == name]
        assert sorted(found) == sorted(scanned)
    details = table.state().require_details()
    for entry in details.index_catchup.values():
        for region, generation in entry.items():
            assert generation <= details.merged_generation(region)
    return {str(region): generation for region, generation in details.merged_generations.items()}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.req("MRG-06", "MRG-18", "BLD-15", "CAT-13", "GC-20", "GC-21", "GC-29")
def test_a_hundred_killed_jobs_lose_double_and_resurrect_no_acknowledged_row(tmp_path: Path) -> None:
    """Bug class 6: a crash between any two writes of any job leaves a state that the next run completes."""
    rng = random.Random(20261121)
    table = make_people_table(str(tmp_path / "t"), buckets=2, settings=SETTINGS)
    table.dataset().create_scalar_index("score", "BTREE")
    table.dataset().create_scalar_index("name", "INVERTED")
    site = JobSite(table.uri, SETTINGS)
    stream = Stream(table, rng)
    killed = []
    progress: dict[str, int] = {}
    with job_process_server() as server:
        for number in range(1, ROUNDS + 1):
            pair = [start_job(server, site, job) for job in (JOBS[number % len(JOBS)], rng.choice(JOBS))]
            stream.write_for(rng.uniform(0.01, 0.35))
            killed += [process.kill() for process in pair]
            if number % CHECK_EVERY == 0:
                after = require_sound(table, stream.rows)
                assert all(after.get(region, 0) >= merged for region, merged in progress.items())
                progress = after

    assert len(killed) == 100
    assert sum(each.in_mid_run for each in killed) >= 60
    assert set(Counter(each.job for each in killed if each.finished)) >= {"merge", "snapshot", "catchup", "gc"}
    stream.writer.close()
    admin = TableAdmin.open(table.uri, settings=SETTINGS)
    for job in ("merge", "catchup", "compact", "catchup", "snapshot"):
        run_once(admin, site, job)
    collected = admin.collect_garbage(GcRequest(dry_run=False, wait=True, holder=TAKES_OVER))
    assert collected.failures == ()
    require_sound(table, stream.rows)
    assert table.dataset().count_rows() == len(stream.rows)
    report = admin.insight.doctor()
    assert report.healthy, report.findings
