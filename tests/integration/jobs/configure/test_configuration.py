"""Changes of a table's configuration on real tables: one commit each, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from memwal_core.base_table import read_snapshot
from memwal_core.cli.app import app
from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.region.spec import RegionSpec, bucket_spec
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively

OLD, NEW = "vec_idx", "vec_new_idx"


@pytest.fixture
def admin(tmp_path: Path) -> Table:
    """Merged once and caught up, a snapshot published, one index that MemTables maintain."""
    uri = str(tmp_path / "t")
    make_articles_table(uri, rows=300, kinds=("BTREE", "BITMAP", "IVF_PQ"), maintained=(OLD,))
    admin = Table.open(uri)
    write(admin, 300)
    admin.run(MergeRequest())
    admin.run(CatchupRequest())
    admin.run(SnapshotRequest())
    return admin


def write(admin: Table, first: int) -> None:
    with TableWriter.open(admin.base) as writer:
        writer.put(articles(first, 40))
        writer.flush()


def details(admin: Table) -> MemWalIndexDetails:
    return admin.base.state().require_details()


def changed(before: MemWalIndexDetails, after: MemWalIndexDetails) -> set[str]:
    return {each.name for each in fields(before) if getattr(before, each.name) != getattr(after, each.name)}


def create_successor(admin: Table) -> None:
    dataset = admin.base.dataset()
    dataset.create_index("vec", "IVF_PQ", name=NEW, num_partitions=2, num_sub_vectors=8)


@pytest.mark.req("IDX-41")
def test_each_change_is_one_commit_that_keeps_progress_catch_up_and_snapshots(admin: Table) -> None:
    version, before = admin.base.state().version, details(admin)
    snapshot = read_snapshot(admin.base, admin.base.state())
    spec = bucket_spec(7, "id", admin.base.state().field_ids, 8)

    reports = [
        admin.configuration.add_region_spec(RegionSpec(7, spec.fields)),
        admin.configuration.maintain_index("topic_idx"),
        admin.configuration.maintain_index("topic_idx"),
    ]

    assert [report.outcome.value for report in reports] == ["done", "done", "nothing_to_do"]
    assert [report.version for report in reports] == [version + 1, version + 2, version + 2]
    assert changed(before, details(admin)) == {"region_specs", "maintained_indexes"}
    assert read_snapshot(admin.base, admin.base.state()) == snapshot
    released = admin.configuration.release_index("topic_idx")
    assert released.outcome is JobOutcome.DONE
    assert changed(before, details(admin)) == {"region_specs", "index_catchup"}
    assert details(admin).index_catchup.keys() == before.index_catchup.keys() - {"topic_idx"}
    assert details(admin).merged_generations == before.merged_generations
    for wrong in ("absent", "id_idx", "__lance_mem_wal"):
        with pytest.raises(InvalidRequestError):
            admin.configuration.maintain_index(wrong)


@pytest.mark.req("IDX-40")
def test_index_gives_way_to_its_successor_only_when_every_memtable_and_reader_has_that(admin: Table) -> None:
    replace = admin.configuration.replace_index
    assert replace(OLD, NEW).obstacles == ("the new index does not exist",)
    write(admin, 340)  # a generation with the old codebook only
    create_successor(admin)

    blocked = replace(OLD, NEW)

    assert (blocked.outcome, blocked.outcome.exit_code) == (JobOutcome.BLOCKED, 5)
    maintained, lacking, readers = blocked.obstacles
    assert maintained == f"MemTables do not maintain {NEW}"
    assert lacking.startswith(f"unmerged flushed MemTables lack {NEW}: generation 2 of region ")
    assert readers == "it is not confirmed that all readers use the new index"
    version = admin.base.state().version

    admin.configuration.maintain_index(NEW)
    write(admin, 380)  # these have both
    assert len(replace(OLD, NEW, readers_moved=True).obstacles) == 1
    merge_through(admin, 2)
    admin.run(CatchupRequest())
    assert replace(OLD, NEW).obstacles == (readers,)
    assert admin.status().merge_lag_generations > 0  # what is not merged yet has the new index

    planned = replace(OLD, NEW, readers_moved=True, dry_run=True)
    before = details(admin)
    done = replace(OLD, NEW, readers_moved=True)

    assert (planned.outcome, done.outcome) == (JobOutcome.PLANNED, JobOutcome.DONE)
    assert done.version == planned.version + 1 > version
    assert [index.name for index in admin.base.indexes()] == ["__lance_mem_wal", "id_idx", "topic_idx", NEW]
    assert details(admin).maintained_indexes == (NEW,)
    assert changed(before, details(admin)) == {"maintained_indexes", "index_catchup"}
    assert OLD not in details(admin).index_catchup
    for first in (300, 340, 380):
        vector = np.asarray(articles(first, 40).column("vec")[7].as_py(), dtype=np.float32)
        found = Table(admin.opened).vector_search(VectorQuery("vec", vector, 1, ("id",), refine_factor=20))
        assert found.column("id").to_pylist() == [first + 7]
    assert admin.doctor().healthy


def merge_through(admin: Table, generation: int) -> None:
    """Merge one generation at a time, so that the last one stays."""
    for region in admin.opened.manifests.region_ids():
        while details(admin).merged_generation(region) < generation:
            plan = admin.run(MergeRequest(regions=(region,), max_bytes=1, dry_run=True)).plan
            (first, *_) = next(each for each in plan.regions if each.region_id == region).take
            manifest = admin.opened.manifests.load(region)
            path = next(each.path for each in manifest.flushed_generations if each.generation == first.generation)
            rows = admin.base.dataset().__class__(admin.base.store.uri_of(f"_mem_wal/{region}/{path}")).to_table()
            rows = rows.select(admin.base.state().schema.names)
            merge_natively(admin.base, rows, {region: first.generation})


@pytest.mark.req("IDX-40")
def test_successor_that_lacks_rows_or_is_of_other_columns_is_refused(admin: Table) -> None:
    create_successor(admin)
    admin.configuration.maintain_index(NEW)
    write(admin, 340)
    admin.run(MergeRequest())

    behind = admin.configuration.replace_index(OLD, NEW, readers_moved=True)
    other = admin.configuration.replace_index(OLD, "topic_idx", readers_moved=True)

    assert any("rows of the base table" in obstacle for obstacle in behind.obstacles)
    assert any("has not caught up with" in obstacle for obstacle in behind.obstacles)
    assert "the indexes cover different columns" in other.obstacles
    assert admin.configuration.replace_index(OLD, OLD, readers_moved=True).obstacles == (
        "an index cannot be its own successor",
    )
    admin.run(CatchupRequest())
    assert admin.configuration.replace_index(OLD, NEW, readers_moved=True).outcome is JobOutcome.DONE


def test_command_shows_obstacles_and_ends_with_5(admin: Table) -> None:
    uri = admin.base.uri
    create_successor(admin)
    run = CliRunner().invoke

    maintained = run(app, ["index", "maintain", uri, NEW])
    again = run(app, ["index", "maintain", uri, NEW, "--json"])
    blocked = run(app, ["index", "replace", uri, OLD, NEW])
    planned = run(app, ["index", "replace", uri, OLD, NEW, "--readers-moved", "--dry-run"])
    released = run(app, ["index", "release", uri, NEW])

    assert [each.exit_code for each in (maintained, again, blocked, planned, released)] == [0, 3, 5, 0, 0]
    assert json.loads(again.stdout)["outcome"] == "nothing_to_do"
    assert "it is not confirmed that all readers use the new index" in blocked.stdout
    assert details(admin).maintained_indexes == (OLD,)
