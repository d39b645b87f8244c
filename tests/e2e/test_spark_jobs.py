"""Jobs on a standalone cluster of two workers, one of whose executors is killed while it works."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable, read_coverage, read_snapshot
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.ids import RegionId
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.region import RegionManifest
from memwal_core.table import Table
from testkit.simulation.view import lsm_view
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import drop_old_versions, write_generations
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people
from tests.e2e.job_cluster import JobCluster

pytestmark = [pytest.mark.spark]

REGIONS = 24
ARTICLES = native_region_id(1)


def merged_table(uri: str) -> BaseTable:
    """Make a table of many regions with merged generations."""
    table = make_people_table(uri, rows=people(*range(100)), buckets=REGIONS)
    write_generations(table, list(range(50, 300)), list(range(200)), name="a")
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)
    return table


def recorded(manifests: Iterable[RegionManifest]) -> dict[RegionId, list[tuple[int, str]]]:
    """Return the flushed MemTables of each region."""
    return {each.region_id: [(one.generation, one.path) for one in each.flushed_generations] for each in manifests}


@pytest.mark.long
@pytest.mark.req("GC-22")
def test_collection_goes_on_when_an_executor_is_killed(tmp_path: Path, job_cluster: JobCluster) -> None:
    uri = str(tmp_path / "t")
    table = merged_table(uri)
    before = lsm_view(table)
    manifests = Table.open(uri).opened.manifests
    before_it = recorded(manifests.load_many(manifests.region_ids()))
    request = GcRequest(dry_run=False, engine=Engine.SPARK)

    report = job_cluster.submit(uri, request, tmp_path / "gc.log", "on executors: collect regions")

    assert report["done"]["flushed_memtable"]["items"] == sum(map(len, before_it.values())) > REGIONS
    assert report["failures"] == []
    assert not any(recorded(manifests.load_many(manifests.region_ids())).values())
    assert lsm_view(table) == before


@pytest.mark.long
def test_snapshot_goes_on_when_an_executor_is_killed(tmp_path: Path, job_cluster: JobCluster) -> None:
    uri = str(tmp_path / "t")
    table = merged_table(uri)
    manifests = Table.open(uri).opened.manifests

    job_cluster.submit(
        uri, SnapshotRequest(engine=Engine.SPARK), tmp_path / "snapshot.log", "on executors: survey regions"
    )

    stored = read_snapshot(table, table.state())
    assert stored is not None
    assert recorded(snapshot_manifests(stored)) == recorded(manifests.load_many(manifests.region_ids()))


@pytest.mark.slow
def test_compaction_goes_on_when_an_executor_is_killed(tmp_path: Path, job_cluster: JobCluster) -> None:
    uri = str(tmp_path / "t")
    rows = people(*range(20_000))
    make_people_table(uri, rows=rows.slice(0, 1000))
    for begin in range(1000, 20_000, 1000):
        lance.write_dataset(rows.slice(begin, 1000), uri, mode="append")

    report = job_cluster.submit(
        uri, CompactRequest(engine=Engine.SPARK), tmp_path / "compact.log", "on executors: rewrite fragments"
    )

    assert (report["fragments_before"], report["fragments_after"]) == (20, 4)
    assert lance.dataset(uri).to_table().sort_by("id").equals(rows)


@pytest.mark.slow
def test_catch_up_goes_on_when_an_executor_is_killed(tmp_path: Path, job_cluster: JobCluster) -> None:
    uri = str(tmp_path / "t")
    table = make_articles_table(uri, maintained=["title_idx", "vec_idx"])
    for generation in range(1, 5):
        merge_natively(table, articles(1900 + 100 * generation, 100, name=f"gen{generation}"), {ARTICLES: generation})

    report = job_cluster.submit(
        uri, CatchupRequest(engine=Engine.SPARK), tmp_path / "catchup.log", "on executors: build title_idx"
    )

    state = table.state()
    assert [each["result"] for each in report["indexes"]] == ["extended"] * 4
    assert state.require_details().index_catchup["vec_idx"] == {ARTICLES: 4}
    assert all(not each.unindexed_fragments for each in read_coverage(table, state.version).indexes)
    assert table.dataset().scanner(full_text_query="gen3", columns=["id"]).to_table().num_rows == 100


@pytest.mark.long
def test_verification_goes_on_when_an_executor_is_killed(tmp_path: Path, job_cluster: JobCluster) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(1000)))
    for begin in range(1000, 20_000, 1000):
        lance.write_dataset(people(*range(begin, begin + 1000)), uri, mode="append")

    report = job_cluster.submit(
        uri, VerifyRequest(engine=Engine.SPARK), tmp_path / "verify.log", "on executors: prove that keys are distinct"
    )

    assert (report["outcome"], report["keys"]) == ("done", 20_000)
