"""The jobs that share their work, on a table in S3: executors and driver reach it by its address alone."""

from __future__ import annotations

from typing import Any

import lance
import pytest
from pyspark.sql import SparkSession

from memwal_core.base_table import read_coverage, read_snapshot
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.gc.items import Kind
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings import CompactSettings, ExecutorSettings, GcSettings, MergeSettings, Settings
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.table import Table
from testkit.s3_server import s3_server
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import drop_old_versions, write_generations
from testkit.tables.people import make_people_table, people

pytestmark = [
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
]

SETTINGS = Settings(
    gc=GcSettings(grace_s=0, open_writer_s=0),
    compact=CompactSettings(target_rows=10_000),
    executors=ExecutorSettings(part_bytes=1024),
    merge=MergeSettings(unit_bytes=1),
)


@pytest.mark.usefixtures("spark")
def test_each_job_shares_its_work_on_s3(spark: SparkSession) -> None:
    with s3_server() as server:
        uri, options = server.uri("bucket/t"), server.storage_options
        base = make_people_table(uri, rows=people(*range(300)), buckets=4, storage_options=options)
        base.dataset().create_scalar_index("id", "BTREE")
        write_generations(base, list(range(200, 400)), list(range(50)), name="a")
        table = Table.open(uri, storage_options=options, settings=SETTINGS)
        seen = lsm_view(base)

        def share(request: JobRequest) -> Any:
            report = table.run(request, executors=SparkExecutors(LateSession("a test"), table.base))
            assert report.outcome is JobOutcome.DONE, report.to_dict()
            assert lsm_view(base) == seen
            return report

        share(MergeRequest(engine=Engine.SPARK))
        assert share(VerifyRequest(engine=Engine.SPARK)).keys == 400
        share(CatchupRequest(engine=Engine.SPARK))
        state = base.state()
        assert all(not each.unindexed_fragments for each in read_coverage(base, state.version).indexes)
        fragments = len(base.dataset().get_fragments())
        share(CompactRequest(engine=Engine.SPARK, force=True))
        assert len(base.dataset().get_fragments()) < fragments
        share(SnapshotRequest(engine=Engine.SPARK))
        assert read_snapshot(base, base.state()) is not None
        drop_old_versions(uri, options)
        collected = share(GcRequest(engine=Engine.SPARK, dry_run=False, wait=True))
        assert collected.failures == ()
        assert collected.done[Kind.FLUSHED_MEMTABLE].items > 0
        assert lance.dataset(uri, storage_options=dict(options)).count_rows() == 400
