"""`memwal airflow install` brings an Airflow what the package ships, and harms no other file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.airflow import FOLDERS, airflow
from memwal_core.errors import InvalidRequestError

ROOT = Path(__file__).resolve().parents[3]


def install(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(airflow, ["install", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def shipped_files() -> dict[str, bytes]:
    found = [path for name in FOLDERS for path in (ROOT / name).glob("*.[pj]*")]
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in found}


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_dags_applications_and_page_are_written_once(tmp_path: Path) -> None:
    target = tmp_path / "airflow"

    code, shown = install(str(target))

    assert code == 0
    assert files_below(target) == shipped_files()
    assert {"dags/memwal_jobs.py", "jobs/merge.py", "plugins/memwal_page.py"} <= shipped_files().keys()
    assert shown.count("wrote ") == len(shipped_files())
    assert install(str(target)) == (3, f"everything is there: {target}\n")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    code, shown = install(str(tmp_path), "--dry-run")

    assert code == 0
    assert shown.count("would write ") == len(shipped_files())
    assert files_below(tmp_path) == {}


def test_a_file_that_differs_is_replaced_only_if_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "memwal_jobs.py").write_text("mine")
    (tmp_path / "dags" / "other.py").write_text("mine, too")

    with pytest.raises(InvalidRequestError) as caught:
        install(str(tmp_path))
    assert caught.value.facts["files"] == ["dags/memwal_jobs.py"]
    assert files_below(tmp_path) == {"dags/memwal_jobs.py": b"mine", "dags/other.py": b"mine, too"}

    assert install(str(tmp_path), "--replace")[0] == 0
    assert files_below(tmp_path) == {**shipped_files(), "dags/other.py": b"mine, too"}


def test_file_in_the_place_of_the_directory_is_named_and_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("mine")

    with pytest.raises(InvalidRequestError, match="cannot be written") as refused:
        install(str(place))

    assert str(refused.value.facts["path"]).startswith(str(place))
    assert refused.value.remedy
    assert place.read_text() == "mine"
    assert CliRunner().invoke(airflow, ["install", str(place)]).output == "", (
        "it said that it wrote a file before it did"
    )
