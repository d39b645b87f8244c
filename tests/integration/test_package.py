"""The package as others install it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memwal_core.cli.airflow import FOLDERS

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place], cwd=ROOT, check=True)
    [built] = place.glob("*.whl")
    return built


def test_the_wheel_holds_dags_applications_page_and_runbooks_as_they_are_here(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        prefix = "memwal_core/shipped/"
        held = {name.removeprefix(prefix): archive.read(name) for name in archive.namelist() if prefix in name}
    here = [path for name in FOLDERS for path in (ROOT / name).glob("*.[pj]*")]
    here += (ROOT / "docs" / "runbooks").glob("*.md")  # the page shows them

    assert held == {str(path.relative_to(ROOT)): path.read_bytes() for path in here}


@pytest.mark.long
def test_plain_pip_installs_a_core_that_merges_and_names_what_it_lacks(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    program = tmp_path / "venv" / "bin"
    subprocess.run([program / "pip", "install", "--quiet", wheel], check=True)

    merged = subprocess.run(
        [program / "python", "-c", MERGE, tmp_path / "table"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert merged.stdout == "done\n[1, 2, 3] ['a', 'bee', 'c']\n"

    command = subprocess.run([program / "memwal", "--help"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert command.returncode == 1
    assert 'pip install "memwal-core[cli]"' in command.stderr
    assert "Traceback" not in command.stderr

    subprocess.run([program / "pip", "install", "--quiet", f"{wheel}[cli]"], check=True)
    arguments = [str(program / "memwal"), "status", str(tmp_path / "table"), "--check"]
    status = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    installed = subprocess.run([program / "memwal", "airflow", "install", tmp_path / "airflow"], check=False)
    assert installed.returncode == 0
    assert (tmp_path / "airflow" / "dags" / "memwal_jobs.py").is_file()
