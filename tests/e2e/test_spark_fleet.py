"""One application on a standalone cluster maintains all tables of a registry, parts of which are killed meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memwal_core.table import Table
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people
from tests.e2e.job_cluster import JobCluster, Victim
from tests.integration.kills.spark_jobs import last_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.req("O1", "O9")]

NAMES = ("orders", "people", "visits")
MOMENT = "executors ended: merge: write winners"
"""In the first merges of two tables, which have a stage to go."""
VARIABLES = {
    "MEMWAL_MERGE__EXECUTORS_MIN_BYTES": "0",
    "MEMWAL_EXECUTORS__MIN_REGIONS": "1",
    # Whoever comes after a driver that was killed need not wait for long.
    "MEMWAL_LEASE__TTL_S": "10",
    "MEMWAL_LEASE__RENEW_AFTER_S": "3",
    "MEMWAL_LEASE__EXPIRY_MARGIN_S": "0",
}


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """Register three tables that wait for a merge, and one that does not exist."""
    for name in NAMES:
        table = make_people_table(str(tmp_path / name), rows=people(*range(100)), buckets=8)
        write_generations(table, list(range(50, 300)), list(range(200)), name="a")
    path = tmp_path / "tables.toml"
    path.write_text("".join(f"[[tables]]\nname = '{name}'\nuri = '{tmp_path / name}'\n" for name in (*NAMES, "gone")))
    return path


def maintain(cluster: JobCluster, registry: Path, log: str, moment: str, victim: Victim) -> dict[str, Any]:
    """Maintain the tables, due or not; return what became of each, nothing if the application was killed."""
    report, path = registry.with_name(f"{log}.json"), registry.with_name(f"{log}.log")
    command = ["maintain.py", "--registry", str(registry), "--parallel", "2", "--now", "--report", str(report)]
    code = cluster.run(command, path, moment, victim, VARIABLES)
    if victim is Victim.DRIVER:
        return {}
    assert code == 6, last_of(path)  # one table is not there
    return {each["table"]: each for each in json.loads(report.read_text())["tables"]}


def require_merged(registry: Path, before: dict[str, object]) -> None:
    for name in NAMES:
        table = Table.open(str(registry.with_name(name)))
        status = table.status()
        assert (status.num_rows, status.merge_lag_generations) == (300, 0)
        assert lsm_view(table.base) == before[name]


@pytest.mark.parametrize("victim", [Victim.EXECUTOR, pytest.param(Victim.WORKER, marks=pytest.mark.long)])
def test_all_tables_are_maintained_although_a_part_of_the_cluster_is_killed(
    registry: Path, job_cluster: JobCluster, victim: Victim
) -> None:
    before = {name: lsm_view(Table.open(str(registry.with_name(name))).base) for name in NAMES}

    found = maintain(job_cluster, registry, "first", MOMENT, victim)

    assert {name: each["outcome"] or each["end"] for name, each in found.items()} == {
        **dict.fromkeys(NAMES, "done"), "gone": "failed",
    }  # fmt: skip
    steps = [step for name in NAMES for step in found[name]["report"]["steps"] if step["step"] == "merge"]
    assert [step["report"]["where"]["engine"] for step in steps] == ["spark"] * len(NAMES)
    require_merged(registry, before)


def test_round_goes_on_where_a_killed_one_was(registry: Path, job_cluster: JobCluster) -> None:
    before = {name: lsm_view(Table.open(str(registry.with_name(name))).base) for name in NAMES}
    maintain(job_cluster, registry, "killed", MOMENT, Victim.DRIVER)
    assert all(lsm_view(Table.open(str(registry.with_name(name))).base) == before[name] for name in NAMES)

    for attempt in range(20):
        maintain(job_cluster, registry, f"again-{attempt}", "", Victim.NONE)
        # A cycle also ends well where a lease of the killed one still keeps it from its merge.
        if not any(Table.open(str(registry.with_name(name))).status().merge_lag_generations for name in NAMES):
            break

    require_merged(registry, before)
