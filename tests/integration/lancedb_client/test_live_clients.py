"""All jobs on tables that LanceDB's client writes and reads in processes of its own, with every kind of query."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pytest
from lancedb import LsmWriteSpec
from lancedb.index import FTS, BTree, IvfFlat

from memwal_core.clock import SystemClock
from memwal_core.region.spec.lance_bucket import lance_bucket
from memwal_core.settings import CompactSettings, GcSettings, IndexSettings, Settings
from memwal_core.table import Table
from testkit.processes.command import run_command
from testkit.processes.job import JobSite, run_once
from testkit.processes.lancedb_client import ClientSite, ask, client_processes, rows, write

pytestmark = pytest.mark.slow

SECONDS = 15.0
KEYS = 40
BUCKETS = 4
SPECS = {
    "unsharded": LsmWriteSpec.unsharded(),
    "bucket": LsmWriteSpec.bucket("id", BUCKETS),
    "identity": LsmWriteSpec.identity("tenant"),
}
SETTINGS = Settings(
    index=IndexSettings(inline_snapshot_threshold=1),
    compact=CompactSettings(min_fragments=2),
    gc=GcSettings(grace_s=5, open_writer_s=0),
)


def regions_of_writers(kind: str) -> list[list[list[int]]]:
    """Return, for each writer, the keys of each of its regions: two writers never share one."""
    keys = range(KEYS)
    if kind == "unsharded":
        return [[list(keys)]]
    if kind == "identity":
        return [[list(keys[0::2])], [list(keys[1::2])]]
    buckets = lance_bucket(pa.array(keys, pa.int64()), BUCKETS).to_pylist()
    regions = [[key for key in keys if buckets[key] == bucket] for bucket in range(BUCKETS)]
    return [regions[:2], regions[2:]]


def make_table(database: Path, kind: str) -> ClientSite:
    table = lancedb.connect(database).create_table("docs", rows(range(0, KEYS, 3), version=0))
    table.create_index("text", config=FTS())
    table.create_index("tenant", config=BTree())
    table.create_index("vector", config=IvfFlat(num_partitions=1))
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(SPECS[kind])
    return ClientSite(str(database))


@pytest.mark.parametrize("kind", list(SPECS))
def test_no_job_disturbs_clients_that_write_and_ask(kind: str, tmp_path: Path) -> None:
    site = make_table(tmp_path / "db", kind)
    ours = Table.open(site.uri, settings=SETTINGS)
    jobs = JobSite(site.uri, SETTINGS, keep_versions_s=5)
    clock = SystemClock()
    with client_processes(KEYS) as clients:
        for seed, regions in enumerate(regions_of_writers(kind)):
            clients.add(write, site, regions, seed)
        clients.add(ask, site)
        begin = clock.monotonic()
        while clock.monotonic() - begin < SECONDS:
            for job in ("merge", "snapshot", "catchup", "compact", "gc"):
                run_once(ours, jobs, job)
            assert run_command(["maintain", site.uri], {}).code in {0, 3}
        asked = clients.stop()
        expected = clients.visible()

    assert all(asked[kind] > 3 for kind in ("writes", "scan", "where", "vector", "text", "count", "hybrid")), asked
    assert run_command(["checkpoint", site.uri, "--ok-when-nothing"], {}).code == 0
    merged = site.open().search().use_lsm(False).limit(None).to_arrow()
    found = dict(zip(merged["id"].to_pylist(), merged["version"].to_pylist(), strict=True))
    assert {key: version for key, version in found.items() if version} == expected
    assert merged.num_rows == len(found) == site.open().count_rows()
    assert run_command(["verify", site.uri], {}).code == 0
