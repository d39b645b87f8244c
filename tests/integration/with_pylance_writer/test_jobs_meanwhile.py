"""All jobs on a table that Lance's own writer keeps writing in another process, deletes included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from pathlib import Path

import lance
import pytest

from memwal_core.clock import SystemClock
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.settings import CompactSettings, GcSettings, IndexSettings, Settings, WalCollection
from memwal_core.table import Table
from testkit.processes.job import TAKES_OVER, JobSite, forget_versions, run_once
from testkit.processes.native_writer import NativeStream, native_writer_process
from testkit.s3_server import s3_server
from testkit.tables.native_regions import native_region_id, native_scan
from testkit.tables.people import make_people_table, people

SECONDS = 12.0
LONGEST_S = 300.0
WRITES = 20
REGION = native_region_id(7)
SETTINGS = Settings(
    index=IndexSettings(inline_snapshot_threshold=1),
    compact=CompactSettings(min_fragments=2),
    # Real ages on a real clock; no flush here takes as long, and only one writer ever writes.
    gc=GcSettings(
        grace_s=0.3,
        open_writer_s=0,
        collect_wal=WalCollection.ALL,
        wal_min_age_s=1,
        wal_epoch_checks=0.1,
        orphan_age_s=20,
        manifest_retention=3,
        manifest_min_age_s=1,
        allow_unsafe_retention=True,
    ),
)

MERGED = {Kind.FLUSHED_MEMTABLE, Kind.DIRECTORY, Kind.WAL_ENTRY}
"""Garbage that every merge leaves."""


def collect(admin: Table, site: JobSite, done: Counter[Kind]) -> None:
    forget_versions(site)
    report = admin.run(GcRequest(dry_run=False), holder=TAKES_OVER)
    assert report.failures == ()
    done.update({kind: tally.items for kind, tally in report.done.items() if tally.items})


def rows_of_base(admin: Table) -> dict[int, str]:
    found = admin.base.dataset().to_table(columns=["id", "name"]).to_pydict()
    assert len(found["id"]) == len(set(found["id"]))
    return dict(zip(found["id"], found["name"], strict=True))


def require_indexes_answer_like_scans(admin: Table) -> None:
    dataset = admin.base.dataset()
    rows = rows_of_base(admin)
    for limit in (5, 17, 100):
        found = dataset.to_table(columns=["id"], filter=f"score < {limit}").column("id").to_pylist()
        assert sorted(found) == sorted(key for key in rows if key < limit)


def rows_of_lances_reader(admin: Table) -> dict[int, str]:
    found = native_scan(admin.base.uri, [admin.opened.manifests.load(REGION)], ["id", "name"], "id").to_pydict()
    return dict(zip(found["id"], found["name"], strict=True))


def work(
    uri: str, options: Mapping[str, str] | None, jobs: tuple[str, ...], pause_s: float, collected: Set[Kind]
) -> tuple[Table, JobSite, dict[int, str], Counter[Kind]]:
    """Write for some seconds, and until garbage of given kinds was met, while the jobs run in turn.

    Returns:
        The table, and what was acknowledged and collected.
    """
    table = make_people_table(uri, rows=people(*range(20)), storage_options=options, settings=SETTINGS)
    table.dataset().create_scalar_index("score", "BTREE")
    site = JobSite(uri, SETTINGS, options, keep_versions_s=0.5)
    admin = Table.open(uri, storage_options=options, settings=SETTINGS)
    done: Counter[Kind] = Counter()
    clock = SystemClock()
    with native_writer_process(
        NativeStream(uri, REGION, options, first_rows=20, memtable_rows=30, pause_s=pause_s)
    ) as writer:
        begin = clock.monotonic()
        while (lasted := clock.monotonic() - begin) < SECONDS or (
            lasted < LONGEST_S and not (collected <= done.keys() and writer.writes() > WRITES)
        ):
            for job in jobs:
                run_once(admin, site, job)
            if admin.opened.manifests.region_ids():
                collect(admin, site, done)
        rows, writes = writer.stop()
    assert writes > WRITES
    return admin, site, rows, done


@pytest.mark.slow
@pytest.mark.req("MRG-06", "BLD-15", "CAT-06", "GC-20", "GC-24", "GC-25", "GC-29")
def test_no_job_disturbs_lances_writer_or_loses_what_it_wrote(tmp_path: Path) -> None:
    """Bug classes 1, 10, 13 and 16: the writer is never fenced, and deleted rows stay deleted."""
    jobs = ("merge", "catchup", "compact", "catchup", "snapshot")
    admin, site, rows, done = work(str(tmp_path / "t"), None, jobs, 0.002, MERGED)

    assert rows_of_lances_reader(admin) == rows
    for job in jobs:
        run_once(admin, site, job)
    assert rows_of_base(admin) == rows
    require_indexes_answer_like_scans(admin)
    collect(admin, site, done)
    assert rows_of_lances_reader(admin) == rows
    assert done.keys() >= MERGED
    assert admin.base.state().require_details().index_catchup["score_idx"][REGION] == max(
        admin.base.state().require_details().merged_generations.values()
    )
    with lance.dataset(admin.base.uri).mem_wal_writer(str(REGION)) as reopened:
        assert reopened.memtable_stats()["row_count"] == 0


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.req("MRG-06", "BLD-15", "GC-20", "GC-29")
def test_on_s3_no_job_disturbs_lances_writer_or_loses_what_it_wrote() -> None:
    jobs = ("merge", "catchup", "snapshot")
    with s3_server() as server:
        options = dict(server.storage_options)
        admin, site, rows, done = work(
            server.uri("bucket/with-native/people.lance"), options, jobs, 0.2, {Kind.FLUSHED_MEMTABLE}
        )
        for job in jobs:
            run_once(admin, site, job)

        assert rows_of_base(admin) == rows
        collect(admin, site, done)
        assert rows_of_base(admin) == rows
        assert done[Kind.FLUSHED_MEMTABLE] > 0
