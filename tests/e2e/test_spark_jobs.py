"""Jobs on a standalone cluster of two workers, one of whose executors is killed while it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import psutil
import pytest

from demo.stack.stack import free_port
from memwal_core.base_table import BaseTable, read_coverage, read_snapshot
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.ids import RegionId
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.request import JobRequest
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
from tests.e2e.spark_cluster import start_spark
from tests.integration.kills.spark_jobs import last_of, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

JOBS = Path(__file__).resolve().parents[2] / "jobs"
REGIONS = 24
ARTICLES = native_region_id(1)
SETTINGS = {
    "MEMWAL_EXECUTORS__PART_BYTES": "16384",
    "MEMWAL_GC__GRACE_S": "0",
    "MEMWAL_GC__OPEN_WRITER_S": "0",
    "MEMWAL_COMPACT__TARGET_ROWS": "5000",
}


@dataclass(frozen=True)
class Cluster:
    """A cluster, and what its applications find in their environment."""

    workers: Sequence[subprocess.Popen[bytes]]
    variables: Mapping[str, str]

    def executors(self) -> list[psutil.Process]:
        """Return the executors of all applications."""
        found = []
        for child in [child for worker in self.workers for child in psutil.Process(worker.pid).children()]:
            with suppress(psutil.NoSuchProcess):  # One that has just ended.
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def submit(self, uri: str, request: JobRequest, log: Path, moment: str) -> dict[str, Any]:
        """Run a job, kill one executor with its tasks as soon as the job's log has a text, and return the report."""
        report = log.with_suffix(".json")
        document = {"uri": uri, "request": request.to_json(), "report": str(report)}
        script = str(JOBS / f"{request.info.name}.py")
        with log.open("wb") as sink:
            job = subprocess.Popen(
                [sys.executable, script, json.dumps(document)], env=dict(self.variables), stdout=sink, stderr=sink
            )
            try:
                wait_for(lambda: moment in log.read_text(), job, log)
                wait_for(lambda: bool(self.executors()), job, log)
                victim = self.executors()[0]
                with suppress(psutil.NoSuchProcess):
                    for each in [*victim.children(recursive=True), victim]:
                        each.kill()
                assert job.wait(600) == 0, last_of(log)
            finally:
                job.kill()
        found: dict[str, Any] = json.loads(report.read_text())
        assert found["where"] == {"engine": "spark", "reason": "it was asked for"}
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("cluster")
    master = free_port()
    submitted = f"--master spark://127.0.0.1:{master} --executor-memory 512m --driver-memory 512m"
    hosts = "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1"
    variables = {**os.environ, **SETTINGS, "PYSPARK_SUBMIT_ARGS": f"{submitted} {hosts} pyspark-shell"}
    with ExitStack() as cleanup:
        yield Cluster(start_spark(cleanup, root, variables, master, free_port()), variables)


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


@pytest.mark.req("GC-22")
def test_collection_goes_on_when_an_executor_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    uri = str(tmp_path / "t")
    table = merged_table(uri)
    before = lsm_view(table)
    manifests = Table.open(uri).opened.manifests
    before_it = recorded(manifests.load_many(manifests.region_ids()))
    request = GcRequest(dry_run=False, engine=Engine.SPARK)

    report = cluster.submit(uri, request, tmp_path / "gc.log", "on executors: collect regions")

    assert report["done"]["flushed_memtable"]["items"] == sum(map(len, before_it.values())) > REGIONS
    assert report["failures"] == []
    assert not any(recorded(manifests.load_many(manifests.region_ids())).values())
    assert lsm_view(table) == before


def test_snapshot_goes_on_when_an_executor_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    uri = str(tmp_path / "t")
    table = merged_table(uri)
    manifests = Table.open(uri).opened.manifests

    cluster.submit(uri, SnapshotRequest(engine=Engine.SPARK), tmp_path / "snapshot.log", "on executors: survey regions")

    stored = read_snapshot(table, table.state())
    assert stored is not None
    assert recorded(snapshot_manifests(stored)) == recorded(manifests.load_many(manifests.region_ids()))


def test_compaction_goes_on_when_an_executor_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    uri = str(tmp_path / "t")
    rows = people(*range(20_000))
    make_people_table(uri, rows=rows.slice(0, 1000))
    for begin in range(1000, 20_000, 1000):
        lance.write_dataset(rows.slice(begin, 1000), uri, mode="append")

    report = cluster.submit(
        uri, CompactRequest(engine=Engine.SPARK), tmp_path / "compact.log", "on executors: rewrite fragments"
    )

    assert (report["fragments_before"], report["fragments_after"]) == (20, 4)
    assert lance.dataset(uri).to_table().sort_by("id").equals(rows)


def test_catch_up_goes_on_when_an_executor_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    uri = str(tmp_path / "t")
    table = make_articles_table(uri, maintained=["title_idx", "vec_idx"])
    for generation in range(1, 5):
        merge_natively(table, articles(1900 + 100 * generation, 100, name=f"gen{generation}"), {ARTICLES: generation})

    report = cluster.submit(
        uri, CatchupRequest(engine=Engine.SPARK), tmp_path / "catchup.log", "on executors: build id_idx"
    )

    state = table.state()
    assert [each["result"] for each in report["indexes"]] == ["extended"] * 4
    assert state.require_details().index_catchup["vec_idx"] == {ARTICLES: 4}
    assert all(not each.unindexed_fragments for each in read_coverage(table, state.version).indexes)
    assert table.dataset().scanner(full_text_query="gen3", columns=["id"]).to_table().num_rows == 100


def test_verification_goes_on_when_an_executor_is_killed(tmp_path: Path, cluster: Cluster) -> None:
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(*range(1000)))
    for begin in range(1000, 20_000, 1000):
        lance.write_dataset(people(*range(begin, begin + 1000)), uri, mode="append")

    report = cluster.submit(
        uri, VerifyRequest(engine=Engine.SPARK), tmp_path / "verify.log", "on executors: count keys"
    )

    assert (report["outcome"], report["keys"]) == ("done", 20_000)
