"""Snapshot, catch-up and compaction processes killed at any moment while merges go on."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from memwal_core.base_table import read_coverage, read_snapshot
from memwal_core.errors import ConflictError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.table import Table
from testkit.processes.start import LONGEST_WAIT_S, start_process
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations

REGION = native_region_id(1)
KILLS = 6
HOLDER = "the one worker of this table"


def _work_for_ever(uri: str, connection: Connection) -> None:
    """Build snapshots, catch up and compact in turn."""
    admin = Table.open(uri)
    connection.send("ready")
    while True:
        with suppress(ConflictError):
            admin.run(SnapshotRequest(force=True), holder=HOLDER)
            admin.run(CatchupRequest(), holder=HOLDER)
            admin.run(CompactRequest(force=True), holder=HOLDER)


@pytest.mark.slow
@pytest.mark.req("CAT-13", "BLD-15", "BLD-21")
def test_killed_jobs_lose_no_row_and_no_progress_and_never_record_too_much(tmp_path: Path) -> None:
    table = make_articles_table(str(tmp_path / "t"), rows=300, kinds=("BTREE", "INVERTED", "IVF_PQ"))
    write_native_generations(table.uri, REGION, [[Put(articles(300, 1))]] * KILLS)
    rng = random.Random(7)
    for generation in range(1, KILLS + 1):
        worker, connection = start_process(_work_for_ever, table.uri)
        try:
            assert connection.poll(LONGEST_WAIT_S)
            assert connection.recv() == "ready"
            threading.Event().wait(rng.uniform(0, 0.25))
            merge_natively(table, articles(290 + 10 * generation, 20, name=f"g{generation}"), {REGION: generation})
            threading.Event().wait(rng.uniform(0, 0.25))
        finally:
            worker.kill()
            worker.join()
            connection.close()
        state = table.state()
        details = state.require_details()
        assert details.merged_generation(REGION) == generation
        assert state.num_rows == 310 + 10 * generation
        coverage = read_coverage(table, state.version)
        for name, entry in details.index_catchup.items():
            index = coverage.named(name)
            assert index is not None
            if entry.get(REGION, 0) == generation:
                assert index.unindexed_rows == 0, f"{name} records generation {generation} without having its rows"

    admin = Table.open(table.uri)
    assert admin.run(CompactRequest(force=True), holder=HOLDER).outcome in {
        JobOutcome.DONE,
        JobOutcome.NOTHING_TO_DO,
    }
    admin.run(CatchupRequest(), holder=HOLDER)
    admin.run(SnapshotRequest(force=True), holder=HOLDER)
    details = table.state().require_details()
    assert {name: dict(entry) for name, entry in details.index_catchup.items()} == {
        name: {REGION: KILLS} for name in ("id_idx", "title_idx", "vec_idx")
    }
    assert read_snapshot(table, table.state()) is not None
    found = table.dataset().to_table(full_text_query=f"g{KILLS}", fast_search=True)
    assert found.num_rows == 20
    ids = table.dataset().to_table().column("id").to_pylist()
    assert sorted(ids) == list(range(310 + 10 * KILLS))
