"""Snapshot, catch-up and compaction against an S3 server over HTTP."""

from __future__ import annotations

import pytest

from memwal_core.base_table import read_snapshot, vector_model_digest
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import IndexSettings, Settings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.s3_server import S3Server
from testkit.tables.articles import articles, make_articles_table


@pytest.mark.s3
@pytest.mark.req("BLD-12", "BLD-14", "CAT-01", "CAT-11")
def test_the_jobs_work_on_s3_as_on_a_local_disk(s3: S3Server) -> None:
    uri, options = s3.uri("bucket/catchup/articles.lance"), s3.storage_options
    settings = Settings(index=IndexSettings(inline_snapshot_threshold=2))
    table = make_articles_table(
        uri, rows=300, kinds=("BTREE", "INVERTED", "IVF_PQ"), storage_options=options, settings=settings
    )
    digest = vector_model_digest(table, table.state().version, "vec_idx")
    with TableWriter.open(table) as writer:
        writer.put(articles(280, 40, name="fresh"))
        writer.flush()
    admin = Table.open(uri, storage_options=options, settings=settings)
    assert admin.run(SnapshotRequest()).outcome is JobOutcome.DONE
    assert read_snapshot(table, table.state()).num_rows == 4  # type: ignore[union-attr]
    assert table.state().require_details().inline_snapshots is None
    admin.run(MergeRequest())

    caught_up = admin.run(CatchupRequest())
    compacted = admin.run(CompactRequest(force=True))

    assert (caught_up.outcome, compacted.outcome) == (JobOutcome.DONE, JobOutcome.DONE)
    assert compacted.fragments_after == 1
    details = table.state().require_details()
    assert {name: dict(entry) for name, entry in details.index_catchup.items()} == {
        name: dict(details.merged_generations) for name in ("id_idx", "title_idx", "vec_idx")
    }
    assert vector_model_digest(table, table.state().version, "vec_idx") == digest
    found = table.dataset().to_table(full_text_query="fresh", fast_search=True)
    assert sorted(found.column("id").to_pylist()) == list(range(280, 320))
    # An external snapshot is stored under the id of the index, which no commit of a job changes.
    assert read_snapshot(table, table.state()) is not None
    assert admin.run(SnapshotRequest()).outcome is JobOutcome.NOTHING_TO_DO
