"""What an analysis says that a read asked of the store is what the store was asked."""

from __future__ import annotations

import pyarrow as pa
import pytest

from memwal_core.reader import Consistency
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.s3_server import s3_server
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import keys_of

pytestmark = pytest.mark.s3


def test_every_request_of_this_library_is_counted() -> None:
    """Flushed MemTables that name WAL entries, tombstones, rows in the WAL, and a record to compare with."""
    with s3_server() as server, faulty_proxy(server.endpoint) as proxy:
        options = {**server.storage_options, "aws_endpoint": proxy.endpoint}
        base = make_people_table("s3://bucket/t", rows=people(*range(40)), buckets=2, storage_options=options)
        with TableWriter.open(base) as writer:
            writer.put(people(*range(30, 60), name="first"))
            writer.flush()
            writer.delete(pa.table({"id": [1, 2, 35]}))
            writer.flush()
            writer.put(people(100, 101))
        Table.open(base.uri, storage_options=options).freeze("seen", by="test")
        found = {}
        for name, query in {
            "scan": lambda view: view.scan().to_arrow(),
            "lookup": lambda view: view.lookup(keys_of(2, 3, 45)),
        }.items():
            table = Table.open(base.uri, storage_options=options)
            proxy.forget()
            analysis = table.analyze(query, consistency=Consistency.DURABLE)
            # Lance says who it is; the store of this library does not.
            asked = [each for each in proxy.requests() if not each[2]["user-agent"].startswith("pylance/")]
            found[name] = analysis.rows, sum(analysis.requests.calls.values()) - len(asked)
    assert found == {"scan": (59, 0), "lookup": (2, 0)}
