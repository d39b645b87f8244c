"""The rules of the layout find what breaks them, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_layout import (
    FOLDER_LIMIT,
    TEST_FOLDER_LIMIT,
    circles,
    crowded_folders,
    imports_of,
    misplaced_job_modules,
    shared_names,
)


def _module(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_modules_that_import_each_other_are_a_circle() -> None:
    assert circles({"a": ["b"], "b": ["a"], "c": ["a"]}) == [["a", "b"]]


def test_circle_through_other_modules_is_found_whole() -> None:
    imports = {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["b", "e"], "e": [], "f": ["g"], "g": ["f"]}

    assert sorted(circles(imports)) == [["b", "c", "d"], ["f", "g"]]


def test_imports_that_only_go_down_are_no_circle() -> None:
    assert circles({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) == []


def test_imports_for_type_checkers_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path / "house_a" / "__init__.py")
    _module(tmp_path / "house_a" / "one.py", "from house_a import two\n")
    _module(
        tmp_path / "house_a" / "two.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house_a import one\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    assert imports_of(["house_a"])["house_a.one"] == {"house_a.two"}
    assert circles(imports_of(["house_a"])) == []


def test_circle_of_real_modules_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _module(tmp_path / "house_b" / "__init__.py")
    _module(tmp_path / "house_b" / "one.py", "from house_b import two\n")
    _module(tmp_path / "house_b" / "two.py", "def late() -> None:\n    from house_b import one\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert circles(imports_of(["house_b"])) == [["house_b.one", "house_b.two"]]


def test_class_name_of_two_modules_is_found(tmp_path: Path) -> None:
    paths = [
        _module(tmp_path / "a.py", "class Plan: ...\nclass _Own: ...\nclass Alone: ...\n"),
        _module(tmp_path / "b.py", "class Plan: ...\nclass _Own: ...\n"),
        _module(tmp_path / "c_pb2.py", "class Plan: ...\n"),
    ]

    assert shared_names(paths) == {"Plan": paths[:2]}


def test_function_and_type_of_two_modules_are_found_in_the_library_below_its_faces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "from typing import TypeVar\n\nResultT = TypeVar('ResultT')\nNotes = dict[str, str]\nMOST = 1\n"
        "def read(): ...\ndef _own(): ...\ndef main(): ...\n"
    )
    below = [_module(Path("memwal_core", name, "one.py"), text) for name in ("wal", "jobs/gc")]
    others = [_module(Path(name), text) for name in ("memwal_core/cli/one.py", "testkit/one.py", "demo/one.py")]

    assert shared_names([*below, *others]) == {"Notes": below, "read": below}


@pytest.mark.parametrize(("top", "limit"), [("memwal_core", FOLDER_LIMIT), ("tests", TEST_FOLDER_LIMIT)])
def test_folder_with_too_many_modules_is_found(top: str, limit: int) -> None:
    folder = Path(top) / "reader"
    full = [folder / "__init__.py", *(folder / f"m{number}.py" for number in range(limit))]

    assert crowded_folders(full) == {}
    assert crowded_folders([*full, folder / "more.py"]) == {folder: limit + 1}
    assert crowded_folders([*full, folder / "below" / "more.py"]) == {}


def test_only_jobs_have_plan_and_run() -> None:
    right = [
        Path("memwal_core/jobs/gc/plan.py"),
        Path("memwal_core/jobs/merge/run.py"),
        Path("memwal_core/quality/run.py"),
    ]
    wrong = [
        Path("memwal_core/jobs/merge/work/run.py"),
        Path("memwal_core/jobs/run.py"),
        Path("memwal_core/reader/plan.py"),
    ]

    assert misplaced_job_modules([*right, *wrong]) == wrong
