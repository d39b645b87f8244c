"""Every job on a cluster, with an executor, a worker or its driver killed: it goes on, or the repeat makes it right.

Executors of the other jobs are killed in ``test_spark_jobs.py``.

After a driver has died, the job is run once more while tasks of the dead one may still be at work: rows, progress,
indexes and files are what they would have been.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable, read_coverage, read_snapshot
from memwal_core.clock import SystemClock
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.quality.model import Stage
from memwal_core.settings import load_settings
from memwal_core.table import Table
from testkit.simulation.view import lsm_view
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import drop_old_versions, write_generations
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people, quality_of
from tests.e2e.job_cluster import SETTINGS, JobCluster, Victim

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.req("O10")]

REGIONS = 24
ARTICLES = native_region_id(1)

Check = Callable[[], None]


@dataclass(frozen=True)
class Scene:
    """A job on a table.

    Attributes:
        request: What is asked for.
        begins: What the log of the driver says when executors begin; empty: whenever there are executors.
        make: Makes the table; returns what is true of it at any time, and what is true when the job is done.
    """

    request: JobRequest
    begins: str
    make: Callable[[str], tuple[Check, Check]]


class LaterClock(SystemClock):
    """An hour ahead: the lease of whoever died has ended."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


def _always(table: BaseTable) -> Check:
    before = lsm_view(table)

    def check() -> None:
        assert lsm_view(BaseTable.open(table.uri)) == before

    return check


def _flushed(uri: str) -> BaseTable:
    table = make_people_table(uri, rows=people(*range(100)), buckets=REGIONS)
    write_generations(table, list(range(50, 300)), list(range(200)), name="a")
    return table


def _recorded(uri: str) -> int:
    manifests = Table.open(uri).opened.manifests
    return sum(len(each.flushed_generations) for each in manifests.load_many(manifests.region_ids()))


def _to_merge(uri: str) -> tuple[Check, Check]:
    table = _flushed(uri)

    def done() -> None:
        status = Table.open(uri).status()
        assert (status.num_rows, status.merge_lag_generations) == (300, 0)

    return _always(table), done


def _to_collect(uri: str) -> tuple[Check, Check]:
    table = _flushed(uri)
    Table.open(uri).run(MergeRequest())
    drop_old_versions(uri)

    def done() -> None:
        assert _recorded(uri) == 0
        assert not list((Path(uri) / "_mem_wal").glob("*/*_gen_*/_versions/*"))

    return _always(table), done


def _to_publish(uri: str) -> tuple[Check, Check]:
    table = _flushed(uri)

    def done() -> None:
        stored = read_snapshot(table, table.state())
        assert stored is not None
        assert stored.num_rows == REGIONS

    return _always(table), done


def _in_small_files(uri: str) -> tuple[Check, Check]:
    rows = people(*range(20_000))
    make_people_table(uri, rows=rows.slice(0, 1000))
    for begin in range(1000, 20_000, 1000):
        lance.write_dataset(rows.slice(begin, 1000), uri, mode="append")

    def always() -> None:
        assert lance.dataset(uri).to_table().sort_by("id").equals(rows)

    def done() -> None:
        assert len(lance.dataset(uri).get_fragments()) == 4

    return always, done


def _to_verify(uri: str) -> tuple[Check, Check]:
    always, _ = _in_small_files(uri)
    return always, always


def _to_check(uri: str) -> tuple[Check, Check]:
    table = _flushed(uri)
    Table.open(uri).run(MergeRequest())
    write_generations(table, list(range(250, 350)), name="b")

    def done() -> None:
        quality = quality_of(Table.open(uri))
        for stage in Stage:
            report = quality.newest(stage)
            assert report is not None
            assert {each["result"] for each in report["results"]} <= {"passed", "skipped"}, report

    return _always(table), done


def _with_indexes_behind(uri: str) -> tuple[Check, Check]:
    table = make_articles_table(uri, maintained=["title_idx", "vec_idx"])
    for generation in range(1, 5):
        merge_natively(table, articles(1900 + 100 * generation, 100, name=f"gen{generation}"), {ARTICLES: generation})
    rows = table.dataset().count_rows()

    def always() -> None:
        dataset = lance.dataset(uri)
        assert dataset.count_rows() == rows
        assert dataset.scanner(full_text_query="gen3", columns=["id"]).to_table().num_rows == 100

    def done() -> None:
        state = table.state()
        assert state.require_details().index_catchup["vec_idx"] == {ARTICLES: 4}
        assert all(not each.unindexed_fragments for each in read_coverage(table, state.version).indexes)

    return always, done


SCENES = {
    "merge": Scene(MergeRequest(engine=Engine.SPARK), "on executors: write winners", _to_merge),
    "gc": Scene(
        GcRequest(dry_run=False, engine=Engine.SPARK),
        "on executors: collect regions",
        _to_collect,
    ),
    "snapshot": Scene(
        SnapshotRequest(engine=Engine.SPARK),
        "on executors: survey regions",
        _to_publish,
    ),
    "compact": Scene(
        CompactRequest(engine=Engine.SPARK),
        "on executors: rewrite fragments",
        _in_small_files,
    ),
    "catchup": Scene(
        CatchupRequest(engine=Engine.SPARK),
        "on executors: build title_idx",
        _with_indexes_behind,
    ),
    "verify": Scene(
        VerifyRequest(engine=Engine.SPARK),
        "on executors: prove that keys are distinct",
        _to_verify,
    ),
    "quality": Scene(
        QualityRequest(stage=Stages.BOTH),
        "on executors: count keys",
        _to_check,
    ),
}


@pytest.mark.parametrize(
    ("name", "victim"),
    [*((name, Victim.WORKER) for name in SCENES), ("merge", Victim.EXECUTOR), ("quality", Victim.EXECUTOR)],
)
def test_job_goes_on_when_executors_are_lost(
    tmp_path: Path, job_cluster: JobCluster, name: str, victim: Victim
) -> None:
    scene, uri = SCENES[name], str(tmp_path / "t")
    always, done = scene.make(uri)

    report = job_cluster.submit(uri, scene.request, tmp_path / "job.log", scene.begins, victim)

    assert report["outcome"] == "done"
    always()
    done()


@pytest.mark.parametrize("name", SCENES)
def test_job_whose_driver_was_killed_is_made_right_by_the_next_run(
    tmp_path: Path, job_cluster: JobCluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The next run begins at once, in a process without executors, while tasks of the dead driver may still work."""
    for variable, value in SETTINGS.items():
        monkeypatch.setenv(variable, value)
    scene, uri = SCENES[name], str(tmp_path / "t")
    always, done = scene.make(uri)

    job_cluster.submit(uri, scene.request, tmp_path / "job.log", scene.begins, Victim.DRIVER)

    always()
    if scene.request.info.needs_spark:
        job_cluster.submit(uri, scene.request, tmp_path / "repeat.log", scene.begins, Victim.NONE)
        always()
        done()
        return
    table = Table.open(uri, settings=load_settings(), clock=LaterClock())
    repeat = scene.request.model_copy(update={"engine": Engine.LOCAL})
    assert table.run(repeat).outcome in (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)
    always()
    done()
    table.run(scene.request.model_copy(update={"engine": Engine.AUTO}))
    always()
    done()
