"""Each repair on S3, with pylance's own reader as a witness."""

from __future__ import annotations

import uuid

import lance
import pytest

from memwal_core.errors import CorruptionError, MemwalError
from memwal_core.format.paths import wal_entry_path
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.table import Table
from testkit.faults.faulty_proxy import faulty_proxy
from testkit.s3_server import S3Server
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table
from testkit.tables.people import people

pytestmark = pytest.mark.s3


@pytest.fixture
def made(s3: S3Server) -> GenerationTable:
    return make_generation_table(s3.uri(f"bucket/{uuid.uuid4()}/t.lance"), "ours", s3.storage_options)


def test_generation_is_rebuilt_from_its_wal(made: GenerationTable) -> None:
    made.store.delete_directory(made.directory())
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert made.table.run(RepairRequest()).outcome is JobOutcome.NOTHING_TO_DO
    assert made.seen() == RIGHT
    assert made.merged() == RIGHT


def test_generation_is_given_up_on_demand(made: GenerationTable) -> None:
    made.store.delete_directory(made.directory())
    for wal_id in (2, 3, 4):
        made.store.delete(wal_entry_path(made.region_id, wal_id, ".lance"))
    assert made.table.run(RepairRequest()).outcome is JobOutcome.BLOCKED
    accepted = RepairRequest(accept_loss=(f"{made.region_id}:2",))
    assert made.table.run(accepted).outcome is JobOutcome.DONE
    assert made.table.run(accepted).outcome is JobOutcome.NOTHING_TO_DO
    assert made.merged() == {1: "first", 2: "base", 3: "first", 5: "third"}


@pytest.mark.parametrize("status", [403, 503])
def test_rows_of_a_file_that_the_store_does_not_show_are_not_given_up(
    s3: S3Server, made: GenerationTable, status: int
) -> None:
    """Any answer of the store but silence counted as a damaged file, whose rows a person may give up."""
    for wal_id in (2, 3, 4):
        made.store.delete(wal_entry_path(made.region_id, wal_id, ".lance"))
    made.store.delete_directory(f"{made.directory()}/_versions")
    accepted = RepairRequest(accept_loss=(f"{made.region_id}:2",))
    with faulty_proxy(s3.endpoint) as proxy:
        options = {**s3.storage_options, "aws_endpoint": proxy.endpoint, "client_max_retries": "0"}
        proxy.answer("HEAD", status, times=100, path="_gen_2_0.lance")
        with pytest.raises(MemwalError) as raised:
            Table.open(made.table.uri, storage_options=options).run(accepted)
    assert not isinstance(raised.value, CorruptionError)
    assert made.table.run(accepted).outcome is JobOutcome.DONE
    assert made.merged() == RIGHT


def test_duplicate_keys_are_removed(made: GenerationTable) -> None:
    lance.write_dataset(people(2, name="base"), made.table.uri, mode="append", storage_options=dict(made.options or {}))
    assert made.table.run(RepairRequest(duplicates=True)).outcome is JobOutcome.DONE
    assert made.merged() == RIGHT


def test_torn_manifest_is_set_aside(made: GenerationTable) -> None:
    options = dict(made.options or {})
    newest = lance.write_dataset(people(50), made.table.uri, mode="append", storage_options=options).version
    made.store.put(made.table.base.manifests.locate(newest).path, b"")
    assert made.table.run(RepairRequest()).outcome is JobOutcome.DONE
    assert Table.open(made.table.uri, storage_options=options).base.state().version == newest - 1
    assert made.merged() == RIGHT
