"""What planning costs, counted in requests; and the whole way on an S3 server."""

from __future__ import annotations

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.format.paths import generation_directory_name, generation_path, wal_entry_path
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.settings import GcSettings, Settings, WalCollection
from memwal_core.table import Table
from testkit.faults.faulty_store import FaultyStore
from testkit.s3_server import s3_server
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import (
    MERGED_ROWS,
    collect,
    drop_old_versions,
    gc_admin,
    make_merged_table,
    only_region,
    write_generations,
)
from testkit.tables.people import make_people_table, people


def planning_calls(uri: str, objects: int) -> int:
    """Add many objects to a region, and return the requests that planning makes."""
    plain = make_merged_table(uri)
    store = FaultyStore(plain.store)
    admin = gc_admin(uri, store=store, settings=GcSettings())
    region = only_region(admin)
    with_names = objects // 2
    for number in range(1, with_names // 4 + 1):
        name = generation_directory_name(f"{number:08x}", number)
        for part in range(4):
            plain.store.put(f"{generation_path(region, name)}/data/{part}", b"x")
    for wal_id in range(4, 4 + with_names):
        plain.store.put(wal_entry_path(region, wal_id, ".lance"), b"x")
    store.calls.clear()

    report = admin.run(GcRequest())

    assert sum(item.objects for item in report.plan.items) >= objects
    return len(store.calls)


def test_planning_ten_thousand_objects_takes_as_many_requests_as_a_hundred(tmp_path):
    few, many = planning_calls(str(tmp_path / "few"), 100), planning_calls(str(tmp_path / "many"), 10_000)

    assert few == many
    assert many < 60


@pytest.mark.s3
@pytest.mark.req("GC-01", "GC-20")
@pytest.mark.slow
def test_table_on_s3_is_collected():
    with s3_server() as server:
        uri, options = server.uri("bucket/people.lance"), dict(server.storage_options)
        # The store tells the ages, and a clock that is ahead of it does not.
        gc = GcSettings(
            collect_wal=WalCollection.ALL, grace_s=0, wal_min_age_s=0, wal_epoch_checks=0, allow_unsafe_retention=True
        )
        chosen = Settings(gc=gc)
        table = make_people_table(uri, rows=people(1, 2), buckets=1, storage_options=options)
        write_generations(table, [1, 5], [6], [5, 7], name="a")
        Table.open(uri, storage_options=options).run(MergeRequest())
        drop_old_versions(uri, options)
        opened = BaseTable.open(uri, storage_options=options, settings=chosen)
        admin = Table(OpenTable.of(opened))

        report = collect(admin)

        assert report.outcome is JobOutcome.DONE
        assert report.done[Kind.DIRECTORY].items == 3
        assert report.done[Kind.WAL_ENTRY].items == 2
        assert lsm_view(opened) == MERGED_ROWS
        assert set(collect(admin).done) == set()
