"""Locks that would install something other than what was looked at are found."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools.check_locks import ANSWERS, parse, problems

ROOT = Path(__file__).resolve().parents[3]
HASH = "--hash=sha256:" + "0" * 64


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in (*ROOT.glob("requirements*.lock"), ROOT / "pyproject.toml"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_locks_of_this_repository_are_whole() -> None:
    assert problems(ROOT) == []
    assert len(parse((ROOT / "requirements.lock").read_text())[0]) > 200


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("evil==1.0", "without a hash: evil"),
        (f"evil>=1.0 \\\n    {HASH}", "not a package with one version: evil>=1.0"),
        (f"evil @ https://example.org/evil.whl \\\n    {HASH}", "not a package with one version"),
        ("--extra-index-url https://example.org/simple", "not a package with one version"),
        ("-e .", "not a package with one version"),
        ("evil==1.0 \\\n    --hash=md5:00000000000000000000000000000000", "not a hash, at evil"),
        (f"PySpark==4.2.0 \\\n    {HASH}", "locked twice: pyspark"),
    ],
)
def test_a_line_that_installs_something_unseen_is_found(checkout: Path, lines: str, problem: str) -> None:
    with (checkout / "requirements.lock").open("a") as lock:
        lock.write(f"{lines}\n")

    assert [each for each in problems(checkout) if problem in each]


def test_a_version_that_pyproject_does_not_allow_is_found(checkout: Path) -> None:
    lock = checkout / "requirements.lock"
    lock.write_text(lock.read_text().replace("pyspark==4.2.0", "pyspark==4.1.4"))

    found = problems(checkout)

    assert [each for each in found if "requirements.lock does not give" in each and "pyspark==4.2.0" in each]
    assert [each for each in found if each.startswith("requirements-stack.lock has pyspark 4.2.0")]


def test_a_build_tool_that_is_not_locked_is_found(checkout: Path) -> None:
    lock = checkout / "requirements-build.lock"
    lock.write_text(re.sub(r"^hatchling==.*?(?=^\w)", "", lock.read_text(), flags=re.M | re.S))

    assert [each for each in problems(checkout) if "requirements-build.lock does not give" in each]


def test_a_lock_that_is_missing_or_unknown_is_found(checkout: Path) -> None:
    (checkout / "requirements-uv.lock").rename(checkout / "requirements-more.lock")

    assert problems(checkout) == [
        "not a lock that anything installs: requirements-more.lock",
        "missing: requirements-uv.lock",
    ]


def test_whatever_installs_a_lock_asks_for_hashes_and_builds_nothing_unlocked() -> None:
    installing = re.compile(r"(pip install|pip sync)\b(?:[^\n]|\\\n)*?requirements[\w-]*\.lock")
    scripts = [*(ROOT / "tools").glob("*.sh"), ROOT / "Dockerfile"]
    commands = [found[0] for path in scripts for found in installing.finditer(path.read_text())]

    assert len(commands) >= 4
    for command in commands:
        assert "--require-hashes" in command
        assert "--only-binary :all:" in command
        if "--no-binary" in command:
            assert "requirements-build.lock" in "".join(path.read_text() for path in scripts)
    assert {name for name in ANSWERS if name in "".join(path.read_text() for path in scripts)} == set(ANSWERS)
