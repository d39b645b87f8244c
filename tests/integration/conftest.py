"""What the integration tests of several folders share."""

from collections.abc import Iterator

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.ids import RegionId
from testkit.faults.faulty_proxy import FaultyProxy, faulty_proxy
from testkit.faults.faulty_store import FaultyStore
from testkit.s3_server import S3Server, s3_server
from testkit.tables.regions import create_region


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def line(s3: S3Server) -> Iterator[FaultyProxy]:
    """A way to the server that tests break."""
    with faulty_proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def proxy(line: FaultyProxy) -> FaultyProxy:
    """The same, whole again."""
    line.forget()
    return line


@pytest.fixture
def faulty(table: BaseTable) -> FaultyStore:
    return FaultyStore(table.store)


@pytest.fixture
def region_id(table: BaseTable) -> RegionId:
    return create_region(table)
