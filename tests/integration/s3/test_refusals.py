"""A store that refuses access says nothing of what lies there: nothing is called damaged, and no row is given up."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from memwal_core.errors import StoreRefusedError
from memwal_core.format.paths import wal_entry_path
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.native.decoding import decode_fragment_in_child
from memwal_core.quality.checks.audit import audit_generation
from memwal_core.quality.model import Stage
from memwal_core.quality.table import QualityTable
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.writer.region_writer import RegionWriter
from testkit.faults.faulty_proxy import FaultyProxy, faulty_proxy
from testkit.s3_server import S3Server
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table
from testkit.tables.people import people

pytestmark = pytest.mark.s3

GENERATION = "_gen_2"
BASE_ROWS = "t.lance/data/"


@pytest.fixture
def made(s3: S3Server) -> GenerationTable:
    return make_generation_table(s3.uri(f"bucket/{uuid.uuid4()}/t.lance"), "ours", s3.storage_options)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def beyond(s3: S3Server, made: GenerationTable, proxy: FaultyProxy) -> Table:
    """The same table, whose requests pass the proxy."""
    options = {**s3.storage_options, "aws_endpoint": proxy.endpoint, "client_max_retries": "0"}
    return Table.open(made.table.uri, storage_options=options)


def refuse(proxy: FaultyProxy, path: str) -> None:
    for method in ("GET", "HEAD"):
        proxy.answer(method, 403, times=1000, path=path)


@pytest.mark.parametrize("wal_id", [2, 3, 4])
def test_repair_gives_no_row_up_whose_entry_the_store_refuses(made, proxy, beyond, wal_id):
    accepted = RepairRequest(accept_loss=(f"{made.region_id}:2",))
    made.store.delete_directory(made.directory())
    refuse(proxy, wal_entry_path(made.region_id, wal_id, ".lance"))

    with pytest.raises(StoreRefusedError):
        beyond.run(accepted)

    assert made.table.run(accepted).outcome is JobOutcome.DONE
    assert made.merged() == RIGHT


@pytest.mark.parametrize(
    ("look", "path"),
    [
        pytest.param(lambda table: table.run(VerifyRequest()), BASE_ROWS, id="verify"),
        pytest.param(lambda table: table.run(GcRequest(dry_run=False)), GENERATION, id="gc"),
        pytest.param(lambda table: table.doctor(), GENERATION, id="doctor"),
        pytest.param(lambda table: table.doctor(contents=True), GENERATION, id="doctor contents"),
        pytest.param(lambda table: table.doctor(contents=True), BASE_ROWS, id="doctor base"),
    ],
)
def test_a_look_that_the_store_refuses_finds_nothing_wrong(
    proxy: FaultyProxy, beyond: Table, look: Callable[[Table], object], path: str
) -> None:
    refuse(proxy, path)

    with pytest.raises(StoreRefusedError):
        look(beyond)


def test_process_that_decodes_says_that_the_store_refused(proxy, beyond):
    """It told to back off and retry."""
    dataset = beyond.base.dataset()
    refuse(proxy, BASE_ROWS)

    with pytest.raises(StoreRefusedError):
        decode_fragment_in_child(
            dataset.uri, beyond.base.store.storage_options, dataset.version, dataset.get_fragments()[0].fragment_id
        )


def test_audit_of_a_memtable_that_the_store_refuses_finds_nothing_wrong(made, proxy, beyond):
    quality = QualityTable(beyond.base, beyond.opened.manifests, Settings())
    tasks = quality.audit_tasks(quality.plan(Stage.BEFORE))
    refuse(proxy, GENERATION)

    with pytest.raises(StoreRefusedError):
        [audit_generation(task, beyond.base.storage_options) for task in tasks]


def test_region_whose_wal_the_store_refuses_is_left_for_later_and_not_damaged(made, proxy, beyond):
    writer = RegionWriter.open(made.table.base, made.region_id)
    writer.put(people(7))
    proxy.answer("GET", 403, times=1000, path=wal_entry_path(made.region_id, writer.stats().last_wal_id, ".lance"))

    report = beyond.run(FlushRequest(fence=True))

    assert made.region_id in report.failures
    assert not report.unflushable
