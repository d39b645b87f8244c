"""Check what changed since a base: format, rules, spelling, size, types, import direction, and its unit tests.

The tests of a module are those that mirror its path, else those that import it, else its folder's. Where none of the
three answers, the check says so: it is a quick look, and `make test` is the judgement.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

UNIT = Path("tests/unit")
TESTS = (UNIT, Path("tests/property"))
DOCUMENTS = UNIT / "test_docs.py"
LIBRARY = "memwal_core"
MANY_TESTS = 12
"""A module that more test files import is everywhere: running them all is not a quick look."""
UNTYPED = ("tests", "dags")
"""Top-level folders that mypy leaves out, as pyproject.toml says."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Tests to run.

    Attributes:
        tests: Files and folders, none inside another.
        untold: Changed files whose tests cannot be told, each with the reason.
    """

    tests: tuple[Path, ...]
    untold: Mapping[Path, str]


def changed_files(root: Path, base: str) -> list[Path]:
    """Return the files that differ from where this branch left ``base``, new ones included, deleted ones not."""
    since = _git(root, "merge-base", "HEAD", base)[0]
    names = [
        *_git(root, "diff", "--name-only", "--diff-filter=d", since),
        *_git(root, "ls-files", "--others", "--exclude-standard"),
    ]
    return sorted({Path(name) for name in names})


def choose_tests(root: Path, changed: Iterable[Path]) -> Choice:
    """Return the unit and property tests of changed files."""
    importers = _importers(root)
    tests: set[Path] = set()
    untold: dict[Path, str] = {}
    for path in changed:
        found = _tests_of(root, path, importers)
        if isinstance(found, str):
            untold[path] = found
        else:
            tests |= found
    return Choice(tuple(sorted(each for each in tests if not tests & set(each.parents))), untold)


def _tests_of(root: Path, path: Path, importers: Mapping[str, set[Path]]) -> set[Path] | str:
    if path.parts[0] == "tests":
        return _tests_of_test(path)
    if path.suffix == ".md":
        return {DOCUMENTS}
    if path.suffix != ".py":
        return "neither Python nor a document"
    mirror = _mirror(path)
    if (root / mirror).exists():
        return {mirror}
    importing = importers.get(".".join(path.with_suffix("").parts), set())
    if importing:
        return importing if len(importing) <= MANY_TESTS else f"{len(importing)} test files import it"
    folder = next((each for each in mirror.parents if (root / each).is_dir()), UNIT)
    return {folder} if folder.is_relative_to(UNIT) and folder != UNIT else "no unit test mirrors or imports it"


def _tests_of_test(path: Path) -> set[Path] | str:
    if not any(path.is_relative_to(each) for each in TESTS):
        return "not a unit or property test"
    if path.suffix == ".py" and path.name.startswith("test_"):
        return {path}
    return {path.parent}


def _mirror(path: Path) -> Path:
    inside = path.relative_to(LIBRARY) if path.parts[0] == LIBRARY else path
    return UNIT / inside.with_name(f"test_{path.name}")


def _importers(root: Path) -> dict[str, set[Path]]:
    """Return the test files by the names of the modules, or things in modules, that they import."""
    found: dict[str, set[Path]] = {}
    for folder in TESTS:
        for path in (root / folder).rglob("test_*.py"):
            for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(name, set()).add(path.relative_to(root))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def commands(changed: Sequence[Path], tests: Sequence[Path]) -> dict[str, list[str]]:
    """Return what to run, by name."""
    texts = [str(path) for path in changed]
    python = [str(path) for path in changed if path.suffix in (".py", ".pyi")]
    typed = [path for path in python if Path(path).parts[0] not in UNTYPED]
    found: dict[str, list[str]] = {}
    if python:
        found["format"] = ["ruff", "format", "--check", "--force-exclude", *python]
        found["rules"] = ["ruff", "check", "--force-exclude", "--quiet", *python]
        found["module size"] = [sys.executable, "-m", "tools.check_module_size", *python]
    if texts:
        found["spelling"] = ["codespell", *texts]
    if typed or "pyproject.toml" in texts:
        found["imports"] = ["lint-imports", "--no-logo"]
        found["types"] = ["mypy"]
    if tests:
        found["unit tests"] = ["pytest", "-q", "--no-header", "-m", "not slow and not long", *map(str, tests)]
    return found


def run(root: Path, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Run commands side by side, print what the failing ones said; return whether all succeeded."""
    with tempfile.TemporaryDirectory() as scratch:
        started = []
        for name, command in wanted.items():
            output = (Path(scratch) / name).open("w+", encoding="utf-8")
            process = subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT)
            started.append((name, process, output))
        succeeded = [_end(name, process, output) for name, process, output in started]
    return all(succeeded)


def _end(name: str, process: subprocess.Popen[bytes], output: IO[str]) -> bool:
    succeeded = process.wait() == 0
    output.seek(0)
    said = output.read().rstrip()
    output.close()
    last = said.rpartition("\n")[2] if name in ("types", "unit tests") else ""
    print(f"{name}: ok {last}".rstrip() if succeeded else f"{name}: FAILED\n{said}", flush=True)
    return succeeded


def _git(root: Path, *arguments: str) -> list[str]:
    answered = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return answered.stdout.splitlines()


def _base(root: Path) -> str:
    """Return the branch that changes are compared with: what others have, if this clone knows it."""
    known = _git(root, "for-each-ref", "--format=%(refname:short)", "refs/remotes/origin/main", "refs/heads/main")
    return min(known, key=lambda name: name != "origin/main", default="HEAD")


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="", help="branch or commit to compare with; origin/main, else main")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    base = given.base or _base(given.root)
    changed = changed_files(given.root, base)
    choice = choose_tests(given.root, changed)
    print(
        f"{len(changed)} files changed since {base}; tests: {', '.join(map(str, choice.tests)) or 'none'}", flush=True
    )
    succeeded = run(given.root, commands(changed, choice.tests))
    for path, reason in choice.untold.items():
        print(f"cannot tell which unit tests look at {path}: {reason}")
    print(
        f"{'ok' if succeeded else 'FAILED'} after {time.monotonic() - began:.0f} s; `make test` is the full judgement"
    )
    return int(not succeeded)


if __name__ == "__main__":
    sys.exit(main())
