"""What the work costs in requests, bytes, commits and rows: counts, which no slow machine changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from bench.tables import UNSYNCED, rows, with_regions
from memwal_core.base_table import BaseTable
from memwal_core.format.paths import MEM_WAL_DIRECTORY, generation_path
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.key_filter import KEY_FILTER_NAME
from memwal_core.settings import Settings
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.faults.faulty_store import WRITES, FaultyStore
from testkit.faults.rival_mergers import WAYS, prepared_by
from testkit.s3_server import s3_server
from testkit.tables.people import make_people_table, people

FLOATS = 64
BASE_ROWS = 2_000
BATCH_ROWS = 500
REGIONS = 2


def batch(number: int) -> pa.Table:
    """Half of the keys are in the base, the other half is new."""
    first = BASE_ROWS - BATCH_ROWS // 2
    keys = np.arange(first + number * BATCH_ROWS // 2, first + number * BATCH_ROWS // 2 + BATCH_ROWS)
    return rows(keys, np.random.default_rng(number), floats=FLOATS)


def counted_table(uri: Path, regions: int = REGIONS) -> tuple[BaseTable, FaultyStore]:
    lance.write_dataset(rows(np.arange(BASE_ROWS), np.random.default_rng(1), floats=FLOATS), str(uri))
    with_regions(str(uri), regions)
    store = FaultyStore(open_store(str(uri), settings=UNSYNCED.storage))
    return BaseTable.open(str(uri), store=store, settings=UNSYNCED), store


def admin_of(table: BaseTable, settings: Settings = UNSYNCED) -> Table:
    return Table(OpenTable.of(table.with_settings(settings)))


def write_generations(table: BaseTable, batches: Sequence[pa.Table]) -> None:
    with TableWriter.open(table) as writer:
        for each in batches:
            writer.put(each)
            writer.flush()


def bytes_in(directory: Path) -> int:
    """Return what files take on the disk: one with several names, as flushes make them, counts once."""
    files = {found.st_ino: found.st_size for path in directory.rglob("*") if path.is_file() for found in [path.stat()]}
    return sum(files.values())


def test_durable_put_is_one_object_and_at_most_one_read(tmp_path):
    table, store = counted_table(tmp_path / "t", regions=1)
    with TableWriter.open(table) as writer:
        writer.put(batch(0))
        store.calls.clear()
        for number in range(1, 11):
            writer.put(batch(number))

        written = [call for call in store.calls if call.operation in WRITES]
        assert len(written) == 10
        assert {call.operation for call in written} <= {"put_if_absent", "put_parts_if_absent"}
        assert all("/wal/" in call.path for call in written)
        assert len(store.calls) - len(written) <= 10


def test_wal_takes_little_more_than_the_rows(tmp_path):
    table, _ = counted_table(tmp_path / "t", regions=1)
    given = [batch(number) for number in range(10)]
    with TableWriter.open(table) as writer:
        for each in given:
            writer.put(each)

    written = sum(path.stat().st_size for path in (tmp_path / "t").glob("_mem_wal/*/wal/*"))
    assert written <= 1.15 * sum(each.nbytes for each in given)


@pytest.mark.parametrize("way", WAYS)
def test_merge_reads_each_row_once_and_makes_one_commit_however_many_generations(tmp_path, way):
    settings = Settings(storage=UNSYNCED.storage, merge=prepared_by(way))
    requests = {}
    for count in (2, 8):
        uri = tmp_path / str(count)
        table, store = counted_table(uri)
        given = [batch(number) for number in range(count)]
        write_generations(table, given)
        before = bytes_in(uri / "data")
        store.calls.clear()

        report = admin_of(table, settings).run(MergeRequest())

        (commit,) = report.commits
        assert report.version_after == report.version_before + 1 == lance.dataset(str(uri)).latest_version
        assert commit.rows_read == count * BATCH_ROWS
        winners = lance.dataset(str(uri)).count_rows() - (BASE_ROWS - BATCH_ROWS // 2)
        assert commit.upserts == winners
        row_bytes = given[0].nbytes / BATCH_ROWS
        assert bytes_in(uri / "data") - before <= 1.15 * winners * row_bytes
        requests[count] = len(store.calls)
    # Manifests, leases and holds: nothing that we ask the store for depends on the number of generations.
    assert requests[2] == requests[8]


def test_loop_writes_each_row_once_to_the_wal_and_once_to_the_base(tmp_path):
    uri = tmp_path / "t"
    table, _ = counted_table(uri, regions=1)
    before = bytes_in(uri)
    given = [batch(number) for number in range(20)]
    with TableWriter.open(table) as writer:
        for each in given:
            writer.put(each)
        writer.flush()
    admin_of(table).run(MergeRequest())

    winners = lance.dataset(str(uri)).count_rows() - (BASE_ROWS - BATCH_ROWS // 2)
    row_bytes = given[0].nbytes / BATCH_ROWS
    once = row_bytes * (len(given) * BATCH_ROWS + winners)
    assert bytes_in(uri) - before <= 1.25 * once


def test_snapshot_build_asks_a_bounded_number_of_times_per_region(tmp_path):
    requests = {}
    for regions in (4, 8, 16):
        table, store = counted_table(tmp_path / str(regions), regions)
        write_generations(table, [rows(np.arange(2_000), np.random.default_rng(2), floats=FLOATS)])
        store.calls.clear()
        admin_of(table).run(SnapshotRequest(force=True))
        requests[regions] = len(store.calls)

    per_region = (requests[16] - requests[8]) / 8
    assert per_region == (requests[8] - requests[4]) / 4
    assert per_region <= 8


def test_gc_plan_asks_linearly_and_about_directories_not_objects(tmp_path):
    requests = {}
    for count in (2, 4, 8):
        table, store = counted_table(tmp_path / str(count), regions=1)
        write_generations(table, [batch(number) for number in range(count)])
        admin_of(table).run(MergeRequest())
        (region_id,) = admin_of(table).opened.manifests.region_ids()
        for number in range(50):
            store.inner.put(f"{generation_path(region_id, f'{number:08x}_gen_{count + 1}')}/data/1.lance", b"x")
        objects = len(list(store.inner.list_objects(MEM_WAL_DIRECTORY)))
        store.calls.clear()

        planned = admin_of(table).run(GcRequest()).plan

        assert sum(item.objects for item in planned.items) > 50
        assert len(store.calls) < objects
        requests[count] = len(store.calls)
    assert (requests[8] - requests[4]) / 4 <= (requests[4] - requests[2]) / 2 <= 6


@pytest.mark.slow
@pytest.mark.s3
def test_generation_costs_a_merge_on_s3_a_listing_a_manifest_its_file_and_its_proof(tmp_path):
    with s3_server() as server, faulty_proxy(server.endpoint) as proxy:
        direct = dict(server.storage_options)
        counted = {name: proxy.endpoint if value == server.endpoint else value for name, value in direct.items()}
        seen = {}
        for generations in (1, 4):
            uri = server.uri(f"bucket/{generations}.lance")
            table = make_people_table(uri, rows=people(*range(40)), storage_options=direct)
            with TableWriter.open(table) as writer:
                for number in range(generations):
                    writer.put(people(*range(number * 10, number * 10 + 40), name="new"))
                    writer.flush()
            proxy.forget()
            report = Table.open(uri, storage_options=counted).run(MergeRequest())
            seen[generations] = proxy.requests(), report

    for generations, (requests, report) in seen.items():
        assert len(report.commits) == 1
        assert report.generations == generations * len(report.regions)
        opened = [path for _, path, _ in requests if "_gen_" in path and "_versions" in path]
        assert len(opened) <= 2 * report.generations
        wal = [path for _, path, _ in requests if "/wal/" in path]
        # Three reads by Lance, and a HEAD: the size is compared with that at the flush before any row is believed.
        # One listing of the WAL would cost more: it holds entries of days, and lists cost a dozen times a HEAD.
        assert len(wal) <= 4 * report.generations
        # The keys are compared with the filter that was written along with them.
        assert len([path for _, path, _ in requests if path.endswith(KEY_FILTER_NAME)]) <= report.generations
        new_files = [path for method, path, _ in requests if method == "PUT" and "/data/" in path]
        assert len(new_files) == 1
    fewer, more = seen[1], seen[4]
    added = more[1].generations - fewer[1].generations
    assert len(more[0]) - len(fewer[0]) <= 7 * added
