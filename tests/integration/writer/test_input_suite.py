"""Expectation suites in front of a table writer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.quality.input_suite import arrow_check
from memwal_core.reader import Consistency
from memwal_core.reader.merged import MergedReader
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import writer_settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "people.json"
    expected = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "score", "max_value": 50}}
    path.write_text(json.dumps({"name": "people", "expectations": [expected]}))
    return str(path)


@pytest.mark.req("WRT-88")
def test_a_batch_that_fails_the_suite_is_refused_whole_and_shown(tmp_path: Path, suite: str) -> None:
    settings = writer_settings()
    table = make_people_table(str(tmp_path / "people.lance"), settings=settings)
    with TableWriter.open(table, check=arrow_check([suite])) as writer:
        writer.put(people(*range(10)))
        with pytest.raises(InvalidRequestError, match="expectations") as caught:
            writer.put(people(*range(40, 60)))
        writer.put(people(*range(10, 20)))

    assert "9 of 20" in caught.value.facts["failed"][0]
    assert [row["id"] for row in caught.value.facts["sample_rows"]] == ["51", "52", "53", "54", "55"]
    assert MergedReader(table, consistency=Consistency.DURABLE).count() == 20


def test_large_numbers_beside_null_are_checked_digit_by_digit(tmp_path: Path) -> None:
    """They became floats: different ones counted as the same, and one above the limit as the limit."""
    large = 2**53
    suites = {
        "unique": {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n"}},
        "limit": {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": large}},
    }
    for name, expected in suites.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "expectations": [expected]}))
    rows = pa.table({"n": pa.array([large, large + 1, None], pa.int64())})

    arrow_check([str(tmp_path / "unique.json")])(rows)
    with pytest.raises(InvalidRequestError, match="expectations") as caught:
        arrow_check([str(tmp_path / "limit.json")])(rows)
    assert caught.value.facts["sample_rows"] == [{"n": str(large + 1)}]


def test_values_that_python_does_not_have_are_checked_or_refused_with_their_column(tmp_path: Path, suite: str) -> None:
    """They ended in an error of Arrow or Python that named no column, whatever the suite examined."""
    late = pa.table({"score": [50.0, 51.0], "day": pa.array([0, 10**7], pa.date32())})
    arrow_check([suite])(late.slice(0, 1))
    with pytest.raises(InvalidRequestError, match="expectations") as caught:
        arrow_check([suite])(late)
    assert caught.value.facts["sample_rows"] == [{"score": "51.0", "day": "29349-01-26 00:00:00"}]

    fine = pa.table({"score": [1.0], "at": pa.array([1], pa.time64("ns"))})
    with pytest.raises(InvalidRequestError, match="pandas has no such value") as caught:
        arrow_check([suite])(fine)
    assert (caught.value.facts["column"], caught.value.facts["type"]) == ("at", "time64[ns]")


def test_a_file_without_a_suite_stops_everything_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no expectation suite"):
        arrow_check([str(tmp_path / "nobody.json")])


@pytest.mark.req("WRT-88")
def test_nothing_imports_great_expectations_without_a_suite() -> None:
    modules = "memwal_core.writer, memwal_core.cli.app, memwal_core.spark.ingest.job"
    code = f"import sys, {modules}; sys.exit('great_expectations' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
