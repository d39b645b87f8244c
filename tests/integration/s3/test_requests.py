"""Every HTTP request of each operation, by our own clients and by Lance's, counted exactly at an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.dollars import COUNTED, Requests
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from testkit.faults.faulty_proxy import FaultyProxy, Request, faulty_proxy
from testkit.s3_server import s3_server
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import keys_of

# Looks that are due after some seconds go on beside the puts, and would be counted with whatever runs then.
RARE_LOOKS = Settings(writer=WriterSettings(schema_check_interval_s=3600, epoch_check_interval_s=3600))
ROUNDS = 2
"""The first job of its kind finds no record and no history, and asks more; from the second on, all are alike."""

ROWS = people(*range(30, 50), name="new")
"""Half of them are in the base at first; later each merge replaces the whole file that the one before it wrote."""


class _Operations:
    """Counts what one table's operations ask of the server."""

    def __init__(self, uri: str, direct: dict[str, str], proxy: FaultyProxy, counted: dict[str, str]) -> None:
        make_people_table(uri, rows=people(*range(40)), buckets=1, storage_options=direct)
        self._uri, self._options, self._proxy = uri, counted, proxy
        self.seen: dict[str, list[Requests]] = {}

    def table(self) -> Table:
        return Table.open(self._uri, storage_options=self._options, settings=RARE_LOOKS)

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        self._proxy.forget()
        yield
        found = self._proxy.requests()
        writes = sum(1 for request in found if _costs_as_a_write(request))
        self.seen.setdefault(name, []).append(Requests(writes, len(found) - writes))

    def run(self, name: str, request: JobRequest) -> JobOutcome:
        """Count a job from the opening of the table on, as a command of its own does."""
        with self.counted(name):
            outcome: JobOutcome = self.table().run(request).outcome
        return outcome


def _costs_as_a_write(request: Request) -> bool:
    method, path, _ = request
    return method in {"PUT", "POST"} or (method == "GET" and "list-type=2" in path)


@pytest.fixture
def operations() -> Iterator[_Operations]:
    with s3_server() as server, faulty_proxy(server.endpoint) as proxy:
        direct = dict(server.storage_options)
        counted = {name: proxy.endpoint if value == server.endpoint else value for name, value in direct.items()}
        yield _Operations(server.uri("bucket/t.lance"), direct, proxy, counted)


@pytest.mark.slow
@pytest.mark.s3
def test_each_operation_asks_for_what_the_page_of_benchmarks_counts(operations: _Operations) -> None:
    """A snapshot asked 61 times: it read the version that it had made once more."""
    with operations.table().writer() as writer:
        writer.put(ROWS)  # Claims the region.
        for _ in range(ROUNDS):
            for _ in range(2):  # A flush packs small entries into one file, if there are several.
                with operations.counted("put"):
                    writer.put(ROWS)
            with operations.counted("flush"):
                writer.flush()
            assert operations.run("merge", MergeRequest()) is JobOutcome.DONE
            assert operations.run("snapshot", SnapshotRequest()) is JobOutcome.DONE
    table = operations.table()
    for name in ("lookup, cold", "lookup, warm"):
        with operations.counted(name):
            assert table.lookup(keys_of(35), ["name"]).column("name").to_pylist() == ["new"]
    for name, outcome in (
        ("cycle of a merged table", JobOutcome.DONE),
        *[("idle cycle", JobOutcome.NOTHING_TO_DO)] * 2,
    ):
        assert operations.run(name, MaintainRequest(delete=True)) is outcome

    assert {name: found[-1] for name, found in operations.seen.items()} == COUNTED
