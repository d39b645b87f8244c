"""The quick check picks the tests of what changed, and says where it cannot tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_changed import MANY_TESTS, changed_files, choose_tests, commands, run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository's files: one mirrored module, one that a test imports, one with a folder only."""
    for name, text in {
        "tests/unit/reader/test_scan.py": "",
        "tests/unit/reader/test_plans.py": "from memwal_core.reader import plan\n",
        "tests/unit/tools/test_lock.py": "",
        "tests/property/test_histories.py": "import memwal_core.reader.plan\n",
        "memwal_core/reader/scan.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def _chosen(tree: Path, *changed: str) -> list[str]:
    choice = choose_tests(tree, map(Path, changed))
    assert choice.untold == {}
    return [str(path) for path in choice.tests]


def test_module_has_the_test_that_mirrors_its_path(tree: Path) -> None:
    assert _chosen(tree, "memwal_core/reader/scan.py") == ["tests/unit/reader/test_scan.py"]
    assert _chosen(tree, "tools/lock.py") == ["tests/unit/tools/test_lock.py"]


def test_module_without_a_mirror_has_the_tests_that_import_it(tree: Path) -> None:
    expected = ["tests/property/test_histories.py", "tests/unit/reader/test_plans.py"]

    assert _chosen(tree, "memwal_core/reader/plan.py") == expected


def test_module_without_mirror_and_importer_has_the_tests_of_its_folder(tree: Path) -> None:
    assert _chosen(tree, "memwal_core/reader/vector/probe.py") == ["tests/unit/reader"]


def test_file_inside_a_chosen_folder_is_not_run_twice(tree: Path) -> None:
    assert _chosen(tree, "memwal_core/reader/scan.py", "memwal_core/reader/new.py") == ["tests/unit/reader"]


def test_changed_test_is_run_itself_and_what_tests_share_means_its_folder(tree: Path) -> None:
    assert _chosen(tree, "tests/unit/reader/test_scan.py") == ["tests/unit/reader/test_scan.py"]
    assert _chosen(tree, "tests/unit/reader/conftest.py") == ["tests/unit/reader"]


def test_document_has_the_tests_of_documents(tree: Path) -> None:
    assert _chosen(tree, "docs/format.md") == ["tests/unit/test_docs.py"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("memwal_core/errors.py", "no unit test"),
        ("pyproject.toml", "neither Python nor a document"),
        ("tests/integration/gc/test_collect.py", "not a unit or property test"),
    ],
)
def test_file_whose_tests_cannot_be_told_is_named_with_the_reason(tree: Path, changed: str, reason: str) -> None:
    choice = choose_tests(tree, [Path(changed)])

    assert choice.tests == ()
    assert reason in choice.untold[Path(changed)]


def test_module_that_very_many_tests_import_is_left_to_the_whole_suite(tree: Path) -> None:
    for number in range(MANY_TESTS + 1):
        (tree / f"tests/property/test_{number}.py").write_text("from memwal_core.errors import MemwalError\n")

    choice = choose_tests(tree, [Path("memwal_core/errors.py")])

    assert choice.tests == ()
    assert f"{MANY_TESTS + 1} test files" in choice.untold[Path("memwal_core/errors.py")]


def test_changes_are_those_since_the_branch_left_its_base_committed_or_not(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text("")
        git("add", "-A")
        git("commit", "-qm", name)

    git("init", "-q", "-b", "main")
    commit("old.py")
    commit("gone.py")
    git("checkout", "-qb", "work")
    commit("committed.py")
    git("checkout", "-q", "main")
    commit("of others.py")
    git("checkout", "-q", "work")
    (tmp_path / "old.py").write_text("changed")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("")

    assert changed_files(tmp_path, "main") == [Path("committed.py"), Path("new.py"), Path("old.py")]


def test_types_are_checked_if_typed_code_changed_and_nothing_runs_for_nothing() -> None:
    assert "types" in commands([Path("memwal_core/errors.py")], [])
    assert "types" not in commands([Path("tests/unit/test_docs.py")], [])
    assert commands([], []) == {}


def test_one_failing_check_fails_all_and_only_it_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(text: str, code: int) -> list[str]:
        return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]

    assert not run(tmp_path, {"format": says("long story", 1), "rules": says("all is well", 0)})

    said = capsys.readouterr().out
    assert "format: FAILED\nlong story" in said
    assert "rules: ok" in said
    assert "all is well" not in said
