"""The example of docs/reading.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from memwal_core.table import Table
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reading.md"


@pytest.mark.slow
def test_example_reads_writes_and_streams(tmp_path: Path, spark: SparkSession) -> None:
    [example] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text().partition("\n## Spark\n")[2], re.M | re.S)
    (tmp_path / "arriving").mkdir()
    pq.write_table(people(8, name="Liv"), tmp_path / "arriving" / "1.parquet")
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(1))
    # Paths are given in full: the JVM has a working directory of its own.
    for name in ("people.lance", "arriving/", "checkpoint/"):
        example = example.replace(f'"{name}"', repr(str(tmp_path / name)))

    exec(compile(example, str(PAGE), "exec"), {"spark": spark})

    assert as_model(Table.open(table.uri).to_arrow()) == {1: "p1", 7: "Eve", 8: "Liv"}
