"""Job processes killed with SIGKILL at random moments, on a table that is being written.

``KILL_ROUNDS=50`` kills a hundred on each store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.clock import SystemClock
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.horizon import Horizon, hurried_settings
from testkit.processes.job import TAKES_OVER, JobSite, Killed, run_once, start_job
from testkit.processes.rounds import rounds
from testkit.s3_server import s3_server
from testkit.simulation.view import lsm_view
from testkit.tables.people import make_people_table, people

JOBS = ("merge", "snapshot", "catchup", "gc", "compact")
CHECK_EVERY = 5
KEYS = 60
SETTINGS = hurried_settings(40, grace_s=1, orphan_age_s=8)


class Stream:
    """The one writer of the table, and what it was told is durable."""

    def __init__(self, table: BaseTable, rng: random.Random) -> None:
        self.writer = TableWriter.open(table.with_settings(SETTINGS))
        self.rows: dict[int, str] = {}
        self._rng = rng
        self._number = 0

    def write_for(self, seconds: float, begins: Callable[[], None]) -> None:
        clock = SystemClock()
        end = clock.monotonic() + seconds
        while clock.monotonic() < end:
            begins()
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


def kill_jobs(uri: str, options: Mapping[str, str] | None, times: int, longest_s: float) -> list[Killed]:
    """Kill two jobs at a time under a writer, look at the table again and again, and at last complete what they left.

    Returns:
        What each was doing.
    """
    rng = random.Random(20261121)
    table = make_people_table(uri, buckets=2, storage_options=options, settings=SETTINGS)
    table.dataset().create_scalar_index("score", "BTREE")
    table.dataset().create_scalar_index("name", "INVERTED")
    site = JobSite(uri, SETTINGS, options)
    stream = Stream(table, rng)
    killed = []
    progress: dict[str, int] = {}
    horizon = Horizon()
    writing = horizon.enter()
    for number in range(1, times + 1):
        pair = [start_job(site, job, horizon) for job in (JOBS[number % len(JOBS)], rng.choice(JOBS))]
        stream.write_for(rng.uniform(0.01, longest_s), lambda: horizon.begin(writing))
        if number % 2 == 0:
            # However slow the machine is, some of each job finish what they began.
            pair[0].await_finished()
        killed += [process.kill() for process in pair]
        if number % CHECK_EVERY == 0:
            after = require_sound(table, stream.rows)
            assert all(after.get(region, 0) >= merged for region, merged in progress.items())
            progress = after
    stream.writer.flush()
    stream.writer.close()
    require_completed(site, stream.rows)
    return killed


def require_completed(site: JobSite, rows: dict[int, str]) -> None:
    """Let every job run once more, alone: nothing that a killed process left may keep it from ending well."""
    admin = Table.open(site.uri, storage_options=site.storage_options, settings=SETTINGS)
    for job in ("merge", "catchup", "compact", "catchup", "snapshot"):
        run_once(admin, site, job)
    collected = admin.run(GcRequest(dry_run=False, wait=True), holder=TAKES_OVER)
    assert collected.failures == ()
    require_sound(admin.base, rows)
    assert admin.base.dataset().count_rows() == len(rows)
    report = admin.doctor()
    assert report.healthy, report.findings


@pytest.mark.slow
@pytest.mark.req("MRG-06", "MRG-18", "BLD-15", "CAT-13", "GC-20", "GC-21", "GC-29")
def test_killed_jobs_lose_double_and_resurrect_no_acknowledged_row(tmp_path: Path) -> None:
    """Bug class 6: a crash between any two writes of any job leaves a state that the next run completes."""
    times = rounds(15)
    killed = kill_jobs(str(tmp_path / "t"), None, times, 0.35)

    assert len(killed) == 2 * times
    assert sum(each.in_mid_run for each in killed) >= 0.6 * len(killed)
    assert len({each.job for each in killed if each.finished}) >= 3


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.req("MRG-06", "MRG-18", "BLD-15", "GC-20", "GC-21", "GC-29")
def test_on_s3_killed_jobs_lose_double_and_resurrect_no_acknowledged_row() -> None:
    times = rounds(5)
    with s3_server() as server:
        options = dict(server.storage_options)
        killed = kill_jobs(server.uri("bucket/killed-jobs/people.lance"), options, times, 2.0)

    assert len(killed) == 2 * times
    assert sum(each.in_mid_run for each in killed) >= 0.6 * len(killed)
