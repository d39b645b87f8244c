"""Every command as a process of its own on S3, over real HTTP, on a table with deletes in two regions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from memwal_core.errors import MemwalError
from memwal_core.reader import Consistency
from memwal_core.registry.discovery import discover
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.processes.command import run_command
from testkit.s3_server import S3Server
from testkit.tables.garbage import drop_old_versions
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model

pytestmark = [pytest.mark.s3, pytest.mark.slow]

UNSAFE_GC = {
    "MEMWAL_GC__GRACE_S": "0",
    "MEMWAL_GC__COLLECT_WAL": "all",
    "MEMWAL_GC__WAL_MIN_AGE_S": "0",
    "MEMWAL_GC__WAL_EPOCH_CHECKS": "0",
    "MEMWAL_GC__ORPHAN_AGE_S": "0",
    "MEMWAL_GC__ALLOW_UNSAFE_RETENTION": "true",
}
WRITER = Settings(storage=StorageSettings(), writer=WriterSettings(background_flush=False))


@dataclass
class Commands:
    """Runs commands on one table; knows what must be in it."""

    server: S3Server
    uri: str
    rows: dict[int, str]

    def run(self, *arguments: str, code: int = 0, **settings: str) -> Any:
        options = [
            part for pair in self.server.storage_options.items() for part in ("--storage-option", "=".join(pair))
        ]
        done = run_command([arguments[0], self.uri, *arguments[1:], *options, "--json"], settings)
        assert done.code == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def write(self, name: str, keys: range, deleted: range) -> None:
        table = Table.open(self.uri, storage_options=self.server.storage_options).base
        with TableWriter.open(table.with_settings(WRITER)) as writer:
            writer.put(people(*keys, name=name))
            writer.flush()
            writer.put(people(*keys[:3], name=f"{name}!"))
            writer.delete(pa.table({"id": pa.array(deleted, pa.int64())})) if len(deleted) else None
            writer.flush()
        self.rows |= dict.fromkeys(keys, name) | dict.fromkeys(keys[:3], f"{name}!")
        for key in deleted:
            self.rows.pop(key, None)

    def require_rows(self) -> None:
        table = Table.open(self.uri, storage_options=self.server.storage_options, consistency=Consistency.DURABLE)
        assert as_model(table.to_arrow()) == self.rows


@pytest.fixture
def commands(s3: S3Server, request: pytest.FixtureRequest) -> Commands:
    uri = s3.uri(f"bucket/{request.node.name}/people.lance")
    table = make_people_table(uri, rows=people(*range(40)), storage_options=s3.storage_options, buckets=2)
    table.dataset().create_scalar_index("score", "BTREE")
    made = Commands(s3, uri, {key: f"p{key}" for key in range(40)})
    made.write("first", range(30, 60), range(5))
    return made


@pytest.mark.req("MRG-01", "BLD-21", "CAT-14", "GC-20")
def test_every_job_does_its_work_and_then_has_nothing_to_do(commands: Commands) -> None:
    region = commands.run("status")["regions"][0]["region_id"]
    merged = commands.run("merge", "--engine", "local")
    assert (merged["outcome"], {commit["where"]["engine"] for commit in merged["commits"]}) == ("done", {"local"})
    assert commands.run("merge", code=3)["outcome"] == "nothing_to_do"
    commands.write("second", range(20, 80), range(60, 65))
    merged = commands.run("merge", MEMWAL_MERGE__JOIN_MAX_BYTES="0")
    assert (merged["outcome"], {commit["where"]["engine"] for commit in merged["commits"]}) == ("done", {"local"})
    commands.require_rows()
    assert commands.run("catchup")["outcome"] == "done"
    assert commands.run("compact", "--force", MEMWAL_COMPACT__MIN_FRAGMENTS="2")["outcome"] == "done"
    assert commands.run("catchup", code=3)["outcome"] == "nothing_to_do"
    assert commands.run("snapshot")["outcome"] == "done"
    assert commands.run("snapshot", code=3)["outcome"] == "nothing_to_do"
    # Old versions keep every generation that they have not merged.
    drop_old_versions(commands.uri, commands.server.storage_options)
    assert commands.run("gc", **UNSAFE_GC)["outcome"] == "planned"
    collected = commands.run("gc", "--yes", **UNSAFE_GC)
    assert (collected["outcome"], collected["failures"]) == ("done", [])
    commands.require_rows()
    commands.run("doctor")
    assert commands.run("why", region)
    # Every run but the plan of the garbage collection, in order.
    assert [(run["job"], run["outcome"]) for run in commands.run("history")["runs"]] == [
        ("merge", "done"),
        ("merge", "nothing_to_do"),
        ("merge", "done"),
        ("catchup", "done"),
        ("compact", "done"),
        ("catchup", "nothing_to_do"),
        ("snapshot", "done"),
        ("snapshot", "nothing_to_do"),
        ("gc", "done"),
    ]


@pytest.mark.req("MRG-01", "BLD-21")
def test_maintain_runs_the_whole_cycle_and_comes_to_rest(commands: Commands) -> None:
    steps = {step["job"]: step for step in commands.run("maintain")["steps"]}
    commands.require_rows()
    # Garbage collection only planned, which is not recorded; a cycle is recorded by the runs of its jobs.
    assert (steps["gc"]["end"], steps["gc"]["error"]) == ("ran", None)
    assert {run["job"] for run in commands.run("history")["runs"]} >= {"merge", "catchup", "snapshot"}
    commands.run("checks", code=3)
    status = commands.run("status")
    assert all(region["merge_lag_generations"] == 0 for region in status["regions"])
    commands.run("maintain", code=3)
    commands.run("doctor")


def test_tables_below_a_prefix_are_found(commands: Commands) -> None:
    below, options = commands.uri.rpartition("/")[0], commands.server.storage_options
    make_people_table(f"{below}/a/b/more.lance", storage_options=options)

    found = discover(below, storage_options=options)

    assert [(each.uri, each.regions) for each in found.tables] == [(f"{below}/a/b/more.lance", 0), (commands.uri, 2)]
    assert (found.problems, found.directories) == ((), 5)
    with pytest.raises(MemwalError):
        discover("s3://no-such-bucket/", storage_options=options)
