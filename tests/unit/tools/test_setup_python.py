"""The script that makes the environment, on machines whose Python does not fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = ("tools/setup_python.sh", "tools/find_uv.sh", "requirements-uv.lock")
INSTALL = "next: install Python 3.11, 3.12 or 3.13 (on Debian and Ubuntu: apt-get install python3 python3-venv)"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with what the script calls, and no Python."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("awk", "bash", "dirname", "rm"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def set_up(programs: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [programs.parent / "tools" / "setup_python.sh"],
        env={"PATH": str(programs), "HOME": str(programs.parent), "UV_OFFLINE": "1", **variables},
        check=False,
        capture_output=True,
        text=True,
    )


def test_no_python_and_no_uv_says_what_to_install(programs: Path) -> None:
    ended = set_up(programs)

    assert ended.returncode == 1
    assert "no Python 3.11, 3.12 or 3.13 found, nor one that could install uv" in ended.stderr
    assert INSTALL in ended.stderr


def test_a_refused_download_of_a_python_says_how_to_go_on(programs: Path) -> None:
    uv = subprocess.run(
        [ROOT / "tools" / "find_uv.sh", sys.executable], check=True, capture_output=True, text=True
    ).stdout.strip()
    (programs / "uv").symlink_to(uv)

    ended = set_up(programs)

    assert ended.returncode == 1
    assert "no Python 3.11, 3.12 or 3.13 found, uv downloads one into .python/" in ended.stderr
    assert "uv could not download a Python" in ended.stderr
    assert INSTALL in ended.stderr
    assert "UV_PYTHON_INSTALL_MIRROR" in ended.stderr
    assert not (programs.parent / ".venv").exists()


@pytest.mark.parametrize(("named", "replaced"), [("", False), ("python-old", False), ("python-new", True)])
def test_a_named_python_replaces_another_one(programs: Path, named: str, replaced: bool) -> None:
    known = programs.parent / ".venv" / "bin"
    known.mkdir(parents=True)
    for path, says in ((known / "python", "old"), (programs / "python-old", "old"), (programs / "python-new", "new")):
        path.write_text(f"#!/bin/bash\necho {says}\n")  # to the question where it comes from
        path.chmod(0o755)
    (programs / "python3").symlink_to(programs / "python-new")
    locked = re.search(r"^uv==(\S+)", (ROOT / "requirements-uv.lock").read_text(), re.M)
    assert locked
    uv = programs / "uv"
    uv.write_text(f'#!/bin/bash\necho "uv {locked[1]}"\necho "$@" >> {programs.parent}/asked\n')
    uv.chmod(0o755)

    assert set_up(programs, PYTHON=named).returncode == 0

    asked = (programs.parent / "asked").read_text()
    assert (f"venv --quiet --clear --python {programs}/{named} .venv" in asked) is replaced


def test_a_named_python_that_does_not_fit_is_refused(programs: Path) -> None:
    other = programs / "python3.9"
    other.write_text("#!/bin/bash\nexit 1\n")  # what it answers to the question for its version
    other.chmod(0o755)

    ended = set_up(programs, PYTHON="python3.9")

    assert ended.returncode == 1
    assert "not a Python 3.11, 3.12 or 3.13: python3.9" in ended.stderr
