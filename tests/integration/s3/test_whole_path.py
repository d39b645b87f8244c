"""The whole path on S3: create, write, flush, merge, status, over real HTTP with pylance included."""

import uuid

import pytest

from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.format.paths import MEM_WAL_DIRECTORY
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.s3_server import S3Server
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.s3


@pytest.mark.req("FMT-47", "WRT-03", "MRG-01", "MRG-27")
def test_written_rows_arrive_in_the_base_table_and_a_second_merge_finds_nothing(s3: S3Server) -> None:
    uri = s3.uri(f"bucket/{uuid.uuid4()}/people.lance")
    table = make_people_table(uri, storage_options=s3.storage_options, buckets=2)
    with TableWriter.open(table) as writer:
        writer.put(people(*range(50), name="old"))
        writer.flush()
        writer.put(people(*range(40, 60), name="new"))
        writer.flush()
        writer.put(people(99))
    # The next writer finds the row that was not flushed.
    with TableWriter.open(table) as writer:
        writer.put(people(*range(90, 99)))
        writer.flush()
    admin = Table.open(uri, storage_options=s3.storage_options)
    assert admin.run(MergeRequest()).outcome.value == "done"
    assert admin.run(MergeRequest()).outcome.value == "nothing_to_do"
    rows = table.dataset().to_table(columns=["id", "name"]).to_pydict()
    found = dict(zip(rows["id"], rows["name"], strict=True))
    expected = dict.fromkeys(range(40), "old") | dict.fromkeys(range(40, 60), "new")
    assert found == expected | {key: f"p{key}" for key in range(90, 100)}
    assert all(region.merge_lag_generations == 0 for region in admin.status().regions)


@pytest.mark.req("LEASE-17")
def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(s3: S3Server) -> None:
    uri = s3.uri(f"bucket/{uuid.uuid4()}/people.lance")
    with faulty_proxy(s3.endpoint) as proxy:
        proxy.ignore_conditions()
        options = {**s3.storage_options, "aws_endpoint": proxy.endpoint}
        with pytest.raises(InvalidRequestError, match="condition"):
            make_people_table(uri, storage_options=options)
        admin = Table.open(uri, storage_options=s3.storage_options)
        assert admin.base.state().details is None
        assert list(admin.base.store.list_objects(MEM_WAL_DIRECTORY)) == []


def test_nothing_is_written_below_the_address_of_a_table_that_was_dropped_while_it_was_open(s3: S3Server) -> None:
    """A lease of a job made LanceDB's client list the table again; a freeze stopped the next table there."""
    uri, clock = s3.uri(f"bucket/{uuid.uuid4()}/people.lance"), ManualClock()
    make_people_table(uri, storage_options=s3.storage_options, rows=people(1))
    held = Table.open(uri, storage_options=s3.storage_options, clock=clock)
    store = held.base.store
    assert held.run(MergeRequest()).outcome.value == "nothing_to_do"
    clock.advance(600)
    assert held.run(MergeRequest()).outcome.value == "nothing_to_do"
    for known in list(store.list_objects("")):
        store.delete(known.path)

    with pytest.raises(ObjectNotFoundError, match="the table is gone"):
        held.run(MergeRequest())
    with pytest.raises(ObjectNotFoundError, match="the table is gone"):
        held.freeze("to look at it", by="someone")

    assert list(store.list_objects("")) == []
