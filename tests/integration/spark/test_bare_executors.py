"""Executors without the package end every job that shares its work in one sentence, and nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import lance
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from memwal_core.errors import BareExecutorError
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.table import Table
from testkit.tables.articles import articles, make_articles_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import write_generations
from testkit.tables.native_regions import native_region_id
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


@pytest.fixture
def bare(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks run in a Python that has no site packages."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys._base_executable)


def waiting(uri: str) -> None:
    """Make a table that is merged up to its last generations, in several fragments."""
    table = make_people_table(uri, rows=people(*range(20)), buckets=2)
    write_generations(table, list(range(10, 30)), name="a")
    Table.open(uri).run(MergeRequest())
    write_generations(table, list(range(40, 60)), name="b")


def behind(uri: str) -> None:
    """Make a table whose indexes lack rows."""
    table = make_articles_table(uri, maintained=["title_idx"])
    merge_natively(table, articles(2000, 100, name="gen1"), {native_region_id(1): 1})


def test_executor_with_another_python_is_named_with_both_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to be tried again, which Airflow did four times, and neither version was in the error."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfrom collections import namedtuple\n"
        "sys.version_info = namedtuple('V', 'major minor micro releaselevel serial')(3, 99, 0, 'final', 0)\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    waiting(uri := str(tmp_path / "t"))
    table = Table.open(uri)

    with pytest.raises(BareExecutorError, match="another minor version") as raised:
        table.run(VerifyRequest(engine=Engine.SPARK), executors=SparkExecutors(LateSession("a test"), table.base))

    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (raised.value.facts["executor"], raised.value.facts["driver"]) == ("3.99", own)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("stage", [None, *Stages])
def test_job_with_frames_says_it_as_well(tmp_path: Path, stage: Stages | None) -> None:
    """Ingestions were told to run again, and quality ended with a traceback."""
    uri, place = str(tmp_path / "t"), str(tmp_path / "rows.parquet")
    waiting(uri)
    pq.write_table(people(1, 2), place)
    table = Table.open(uri)
    request = IngestRequest(sources=(place,), batch="b") if stage is None else QualityRequest(stage=stage)

    with pytest.raises(BareExecutorError, match="an executor cannot import what the job needs") as raised:
        table.run(request, executors=SparkExecutors(LateSession("a test"), table.base))

    assert raised.value.facts["python"] == sys._base_executable
    assert "." not in raised.value.facts["missing"]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "request_",
    [
        MergeRequest(engine=Engine.SPARK),
        GcRequest(engine=Engine.SPARK, dry_run=False),
        SnapshotRequest(engine=Engine.SPARK),
        CompactRequest(engine=Engine.SPARK, force=True),
        VerifyRequest(engine=Engine.SPARK),
        CatchupRequest(engine=Engine.SPARK),
    ],
    ids=lambda each: each.info.name,
)
def test_job_says_in_one_sentence_that_executors_lack_the_package(tmp_path: Path, request_: JobRequest) -> None:
    uri = str(tmp_path / "t")
    (behind if isinstance(request_, CatchupRequest) else waiting)(uri)
    table = Table.open(uri)
    version = lance.dataset(uri).version

    with pytest.raises(BareExecutorError, match="an executor cannot import what the job needs") as raised:
        table.run(request_, executors=SparkExecutors(LateSession("a test"), table.base))

    assert raised.value.exit_code == 2
    assert raised.value.facts["python"] == sys._base_executable
    assert raised.value.facts["missing"]
    assert lance.dataset(uri).version == version
