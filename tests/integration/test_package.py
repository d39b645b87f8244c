"""The package as others install it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memwal_core.cli.airflow import FOLDERS
from tests.integration.test_own_airflow import require_that_the_page_maintains_a_table

ROOT = Path(__file__).resolve().parents[2]
MERGE = """
import sys
import pyarrow as pa
import memwal_core
from memwal_core.writer import TableWriter

schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
table = memwal_core.create(sys.argv[1], schema, key="id", buckets=2)
with TableWriter.open(table.base) as writer:
    writer.put(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}, schema=schema))
    writer.put(pa.table({"id": [2], "name": ["bee"]}, schema=schema))
    writer.flush()
print(table.run(memwal_core.MergeRequest()).outcome)
rows = memwal_core.open(sys.argv[1]).base.dataset().to_table().sort_by("id").to_pydict()
print(rows["id"], rows["name"])
"""


SPARK = """
import sys
from memwal_core.spark.data_source import register
from memwal_core.spark.session import LateSession

spark = LateSession("installed", {"spark.master": "local[1]", "spark.ui.enabled": "false"})()
register(spark)
print(spark.read.format("memwal").load(sys.argv[1]).count())
"""
TYPED = """
import pyarrow as pa  # type: ignore[import-untyped]

import memwal_core
from memwal_core import MergeRequest, Table
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.observe.status import TableStatus
from memwal_core.writer import TableWriter


def merged(uri: str, schema: pa.Schema, rows: pa.Table) -> int:
    table: Table = memwal_core.create(uri, schema, key="id", buckets=4)
    writer: TableWriter
    with table.writer() as writer:
        written: int = writer.put(rows).rows
        writer.flush()
    report = table.run(MergeRequest(dry_run=False))
    outcome: JobOutcome = report.outcome
    report.reports  # error: no attribute of a merge's report
    status: TableStatus = table.status()
    print(written, outcome.exit_code, status.merge_lag_generations)
    return table.count()


merged("people.lance", pa.schema([]), pa.table({})).bit_count()
merged(5, pa.schema([]), pa.table({}))  # error: not an address
"""
[OLDEST_AIRFLOW] = re.findall(r'"apache-airflow>=([0-9.]+),', (ROOT / "pyproject.toml").read_text())
PYTHONS = os.environ.get("PYTHONS", sys.executable).split()


def _built(kind: str, place: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", place], cwd=ROOT, check=True)
    [built] = place.iterdir()
    return built


def _install(program: Path, what: str | Path) -> None:
    # Of ten thousand modules few are imported, and these are compiled then.
    subprocess.run([program / "python", "-m", "pip", "install", "--quiet", "--no-compile", what], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module", params=PYTHONS)
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment of a Python, to copy: to make one takes ten times as long."""
    place = tmp_path_factory.mktemp("empty")
    subprocess.run([request.param, "-m", "venv", place], check=True)
    for pip in (place / "bin").glob("pip*"):
        pip.unlink()  # names the Python of this place, also in a copy
    return place


@pytest.fixture
def program(empty: Path, tmp_path: Path) -> Path:
    """The programs of an empty environment of a Python."""
    return shutil.copytree(empty, tmp_path / "venv", symlinks=True) / "bin"


def test_the_wheel_holds_dags_applications_page_and_runbooks_as_they_are_here(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        prefix = "memwal_core/shipped/"
        held = {name.removeprefix(prefix): archive.read(name) for name in archive.namelist() if prefix in name}
    here = [path for name in FOLDERS for path in (ROOT / name).glob("*.[pj]*")]
    here += (ROOT / "docs" / "runbooks").glob("*.md")  # the page shows them

    assert held == {str(path.relative_to(ROOT)): path.read_bytes() for path in here}


@pytest.mark.slow
def test_a_strictly_typed_program_sees_the_types_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert checked.stdout.splitlines()[:-1] == [
        'program.py:19: error: "MergeReport" has no attribute "reports"  [attr-defined]',
        'program.py:26: error: Argument 1 to "merged" has incompatible type "int"; expected "str"  [arg-type]',
    ], checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_plain_pip_installs_a_core_that_merges_and_names_what_it_lacks(
    request: pytest.FixtureRequest, program: Path, tmp_path: Path, form: str
) -> None:
    built: Path = request.getfixturevalue(form)
    _install(program, built)

    merged = subprocess.run(
        [program / "python", "-c", MERGE, tmp_path / "table"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert merged.stdout == "done\n[1, 2, 3] ['a', 'bee', 'c']\n"

    command = subprocess.run([program / "memwal", "--help"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert command.returncode == 2
    assert 'pip install "memwal-core[cli]"' in command.stderr
    assert "Traceback" not in command.stderr

    _install(program, f"{built}[cli]")
    arguments = [str(program / "memwal"), "status", str(tmp_path / "table"), "--check"]
    status = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    installed = subprocess.run([program / "memwal", "airflow", "install", tmp_path / "airflow"], check=False)
    assert installed.returncode == 0
    assert (tmp_path / "airflow" / "dags" / "memwal_jobs.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["quality", "s3"])
def test_plain_pip_installs_each_other_extra_beside_a_core_that_merges(
    wheel: Path, program: Path, tmp_path: Path, extra: str
) -> None:
    _install(program, f"{wheel}[{extra}]")

    merged = subprocess.run(
        [program / "python", "-c", MERGE, tmp_path / "table"], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert merged.stdout.startswith("done\n")
    assert subprocess.run([program / "python", "-m", "pip", "check"], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("extras", ["spark", "airflow,cli,spark"])
def test_plain_pip_installs_a_spark_that_reads_a_table(wheel: Path, program: Path, tmp_path: Path, extras: str) -> None:
    _install(program, f"{wheel}[{extras}]")
    merge = (program / "python", "-c", MERGE, tmp_path / "table")
    subprocess.run(merge, capture_output=True, check=True, cwd=tmp_path)
    variables = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "PYSPARK_PYTHON": str(program / "python")}

    count = subprocess.run(
        [program / "python", "-c", SPARK, tmp_path / "table"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=variables,
    )

    assert count.stdout == "3\n", count.stderr
    assert subprocess.run([program / "python", "-m", "pip", "check"], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.airflow
def test_plain_pip_puts_the_package_beside_the_oldest_airflow_which_stays_and_maintains_a_table(
    wheel: Path, program: Path, tmp_path: Path
) -> None:
    for wanted in (f"apache-airflow=={OLDEST_AIRFLOW}", f"{wheel}[airflow,cli,spark]"):
        _install(program, wanted)
    home = tmp_path / "home"
    home.mkdir()

    require_that_the_page_maintains_a_table(home, f"{program}:{os.environ['PATH']}")

    found = subprocess.run(
        [program / "python", "-c", "from importlib.metadata import version; print(version('apache-airflow'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == OLDEST_AIRFLOW
