"""A batch that has no name is named by its files: both engines read exactly those, and so write it once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memwal_core.errors import ConflictError, InvalidRequestError
from memwal_core.jobs.ingest.request import IngestRequest, SourceFormat
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine
from memwal_core.table import Table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
ENGINES = [Engine.LOCAL, Engine.SPARK]
READ = ["a.parquet", "b [1]{2}.parquet", "_x=y.parquet", "deep/er/dd"]
HIDDEN = ["_d.parquet", ".e.parquet", "f.parquet._COPYING_", "_temporary/g.parquet", ".tmp/h.parquet", "_metadata"]


def put(directory: Path, *names: str) -> None:
    """Write one row into each file: the length of its name."""
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [len(name)]}), path)


def made(place: Path) -> Table:
    return Table.create(str(place), pa.schema([("id", pa.int64())]), key="id", buckets=2)


def asked(place: Path | str, engine: Engine, **options: object) -> IngestRequest:
    return IngestRequest(sources=(str(place),), format=SourceFormat.PARQUET, engine=engine, **options)


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("pattern", ["", "*"])
def test_engines_read_the_same_files_and_take_them_for_the_same_batch(tmp_path: Path, pattern: str) -> None:
    """Behind a pattern, Spark read what is hidden; a marker that came later made the same rows another batch."""
    landing = tmp_path / "landing"
    put(landing, *READ)
    for engine, other in (ENGINES, ENGINES[::-1]):
        put(landing, *HIDDEN[:3])
        (landing / "_SUCCESS").unlink(missing_ok=True)
        table = made(tmp_path / engine)
        first = table.run(asked(landing / pattern, engine))
        put(landing, *HIDDEN)
        (landing / "_SUCCESS").touch()
        again = table.run(asked(landing / pattern, other))

        assert ids(table) == sorted(map(len, READ))
        assert (first.outcome, again.outcome) == (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO)
        assert table.run(asked(landing / pattern, other, batch="once more")).rows_read == len(READ)


@pytest.mark.usefixtures("spark")
def test_batch_of_whose_files_spark_reads_others_is_refused(tmp_path: Path) -> None:
    """Spark looks into directories that are hidden, but begin as the names of its own files of metadata."""
    put(tmp_path / "landing", "a.parquet", "_metadata_of/bc.parquet")
    table = made(tmp_path / "table")
    with pytest.raises(InvalidRequestError, match="other files than those that give the batch its id") as refused:
        table.run(asked(tmp_path / "landing", Engine.SPARK))
    assert [Path(each).name for each in refused.value.facts["files"]] == ["bc.parquet"]
    assert ids(table) == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["a.parquet", "late.parquet"])
def test_file_that_changes_while_the_batch_is_read_refuses_it(tmp_path: Path, engine: Engine, name: str) -> None:
    """The name was that of the files before, so that the next run wrote these rows again."""
    landing, suite = tmp_path / "landing", tmp_path / "suite.py"
    put(landing, "a.parquet")
    suite.write_text(
        "import pathlib, pyarrow as pa, pyarrow.parquet as pq\n"
        "import great_expectations as gx\n"
        f"landing, rows = pathlib.Path({str(landing)!r}), pa.table({{'id': [1, 2, 3]}})\n"
        f"pq.write_table(rows, landing / {name!r})\n"
        "suite = gx.ExpectationSuite('any')\n"
    )
    table = made(tmp_path / "table")
    with pytest.raises(ConflictError, match="changed while they were read"):
        table.run(asked(landing, engine, suites=(str(suite),)))
    assert ids(table) == []
