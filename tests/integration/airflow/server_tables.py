"""The tables of tests on Airflow's servers, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseStore
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import LeaseSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.tables.garbage import drop_old_versions
from testkit.tables.people import make_people_table, people
from tests.integration.airflow.servers import CLOCK, Servers


def make_table(servers: Servers, name: str, *, merged: bool) -> BaseTable:
    """Make a table with two regions of two generations each; ids 0 to 69, of which 0 to 29 are written anew."""
    table = make_people_table(str(servers.root / f"{name}.lance"), rows=people(*range(50), name="old"), buckets=2)
    with TableWriter.open(table) as writer:
        writer.put(people(*range(30), name="new"))
        writer.flush()
        writer.put(people(*range(50, 70), name="new"))
        writer.flush()
    if merged:
        Table.open(table.uri).run(MergeRequest())
        drop_old_versions(table.uri)
    return table


def recorded_generations(table: BaseTable) -> int:
    manifests = Table.open(table.uri).opened.manifests
    return sum(len(manifests.load(region).flushed_generations) for region in manifests.region_ids())


def flushed_directories(table: BaseTable) -> int:
    return sum(1 for path in (Path(table.uri) / "_mem_wal").glob("*/*_gen_*") if any(path.rglob("*.manifest")))


def take_over(table: BaseTable, key: JobKey) -> None:
    """Take a lease from its holder, as somebody whose clock says that it has ended long ago."""
    later = ManualClock(CLOCK.now() + timedelta(days=1))
    LeaseStore(table.store, table.ids, settings=LeaseSettings(), clock=later).acquire(key, "somebody else")


def outcomes(table: BaseTable, job: str) -> list[str]:
    return [run.outcome.value for run in Table.open(table.uri).opened.ledger.runs(job)]


def content(table: BaseTable) -> tuple[list[int], dict[str, int]]:
    rows = table.dataset().to_table(columns=["id", "name"]).to_pydict()
    return sorted(rows["id"]), {name: rows["name"].count(name) for name in ("old", "new")}


MERGED = (list(range(70)), {"old": 20, "new": 50})


@contextmanager
def merges_held(servers: Servers) -> Iterator[None]:
    """Keep merges from beginning: their pool has no slot."""
    path = "pools/memwal_merge"
    pool = {key: servers.ask("GET", path)[key] for key in ("name", "slots", "include_deferred")}
    pool["pool"] = pool.pop("name")
    servers.ask("PATCH", path, {**pool, "slots": 0})
    try:
        yield
    finally:
        servers.ask("PATCH", path, pool)
