"""What OpenLineage's own provider hears of batches and merges."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memwal_core.airflow.operators.lineage import dataset_name
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.airflow

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("/lake/people.lance", "file", "/lake/people.lance"),
        ("s3://bucket/lake/people.lance/", "s3://bucket", "lake/people.lance"),
        ("az://container/people.lance", "az://container", "people.lance"),
        ("glue.sales.orders", "glue", "sales.orders"),
    ],
)
def test_datasets_are_named_by_their_place(address: str, namespace: str, name: str) -> None:
    assert dataset_name(address) == (namespace, name)


def _moved(events: Path) -> list[tuple[str, list[str], list[tuple[str, int]]]]:
    """Return what each task that ended well read and wrote, with rows, if it did."""
    ended = [json.loads(line) for line in events.read_text().splitlines()]
    found: list[Any] = [each for each in ended if each["eventType"] == "COMPLETE" and each["outputs"]]
    return [
        (
            each["job"]["name"],
            [f"{read['namespace']} {read['name']}" for read in each["inputs"]],
            [
                (f"{wrote['namespace']} {wrote['name']}", wrote["outputFacets"]["outputStatistics"]["rowCount"])
                for wrote in each["outputs"]
            ],
        )
        for each in found
    ]


@pytest.fixture
def provider(tmp_path: Path) -> Path:
    """OpenLineage's provider, with what it needs and is not installed here, in a directory of its own."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # Pip takes for installed what this environment has.
    (packages / "around.pth").write_text(sysconfig.get_path("purelib"))
    wanted = "apache-airflow-providers-openlineage>=2.20,<3"
    subprocess.run([tmp_path / "venv" / "bin" / "pip", "install", "--quiet", wanted], check=True)
    return packages


@pytest.mark.long
def test_a_batch_leads_from_its_source_to_the_regions_and_a_merge_from_there_to_the_table(
    tmp_path: Path, run_dag: RunDag, provider: Path
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(5))).uri
    source, events = tmp_path / "new.parquet", tmp_path / "events.jsonl"
    pq.write_table(people(*range(3, 10)), source)
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    told = {"PYTHONPATH": str(provider), "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)}

    for dag, asked in (("memwal_ingest", {"sources": [str(source)], "batch": "1"}), ("memwal_merge", {})):
        ran = run_dag({"table": table, **asked}, dag, **told)
        assert ran.returncode == 0, ran.stdout

    regions = f"file {table}/_mem_wal"
    assert _moved(events) == [
        ("memwal_ingest.work", [f"file {source}"], [(regions, 7)]),
        ("memwal_merge.work", [regions], [(f"file {table}", 7)]),
    ]
