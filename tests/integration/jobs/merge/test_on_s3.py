"""The merge against an S3 server over HTTP."""

from __future__ import annotations

import lance
import pytest

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.s3_server import s3_server
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.s3


@pytest.mark.req("MRG-01", "MRG-06")
def test_generations_on_s3_merge_and_status_sees_it():
    with s3_server() as server:
        uri, options = server.uri("bucket/people.lance"), server.storage_options
        table = make_people_table(uri, rows=people(1), storage_options=options)
        with TableWriter.open(table) as writer:
            writer.put(people(1, 2, 3, 4, name="written"))
            writer.delete(people(2).select(["id"]))
            writer.flush()
        admin = Table.open(uri, storage_options=options)
        waiting = admin.status().merge_lag_generations

        report = admin.run(MergeRequest())

        assert waiting == len(report.regions)
        assert report.outcome is JobOutcome.DONE
        rows = lance.dataset(uri, storage_options=dict(options)).to_table().sort_by("id")
        assert rows.column("id").to_pylist() == [1, 3, 4]
        assert set(rows.column("name").to_pylist()) == {"written"}
        assert admin.status().merge_lag_generations == 0
