"""The page on an Airflow of one's own: its commands, as they stand, maintain a table with an Airflow just made."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_core
from demo.airflow import find_checkout, find_java
from memwal_core.table import Table

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "airflow.md"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TIMEOUT_S = 900
FOREIGN = ("AIRFLOW", "MAINTENANCE", "SPARK", "PYSPARK")


def test_commands_of_the_page_maintain_a_table(tmp_path: Path) -> None:
    require_that_the_page_maintains_a_table(tmp_path, os.environ["PATH"])


def require_that_the_page_maintains_a_table(place: Path, path: str) -> None:
    """Follow the page in an empty directory, with the Airflow that is found on a path."""
    table = Table.create(str(place / "people.lance"), SCHEMA, key="id", buckets=1)
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 2], "name": ["Ann", "Bob"]}))
        writer.flush()
    commands = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(commands) == 6
    assert commands.pop(0).startswith("pip install ")
    java = find_java(find_checkout(Path(memwal_core.__file__).parent), os.environ)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)},
        **({"JAVA_HOME": java} if java else {}),
        "PATH": path,
        "AIRFLOW_HOME": str(place / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    }

    ended = subprocess.run(
        ["bash", "-e", "-c", "\n".join(["airflow db migrate", *commands])],
        cwd=place,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
    )

    assert ended.returncode == 0, ended.stdout[-5000:]
    assert table.base.state().num_rows == 2
    runs = {run.key.job: run.outcome.value for run in table.opened.ledger.runs()}
    assert (runs["maintain"], runs["merge"], runs["snapshot"]) == ("done", "done", "done")
    for name in ("dags/memwal_maintain.py", "jobs/maintain.py", "plugins/memwal_page.py"):
        assert (place / "airflow" / name).is_file()
