"""Fail when the layout of the packages stops being one that can be guessed.

Four rules: no modules import each other in a circle; a public name of a class means one thing, and in the library also
that of a function or a type; a folder has few modules; modules named ``run`` and ``plan`` are those of jobs.
docs/architecture.md shows the layout.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import grimp

PACKAGES = ("memwal_core", "testkit", "demo")
FOLDERS = (*PACKAGES, "jobs", "dags", "plugins", "tools", "bench", "tests")
FOLDER_LIMIT = 14
# Tests mirror the packages; one behaviour more is one file more, and its name says what it is about.
TEST_FOLDER_LIMIT = 20
# Quality is a job as well, which other layers use.
JOB_FOLDERS = ("memwal_core/jobs/*", "memwal_core/quality")
JOB_MODULES = ("plan.py", "run.py")
# Their functions have the names of commands and tasks, and nothing below imports them.
FACES = ("airflow", "cli", "fleet", "spark", "web")


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others.

    Args:
        imports: Module -> modules that it imports.
    """
    below = {module: _below(module, imports) for module in imports}
    found = {frozenset(each for each in seen if module in below.get(each, ())) for module, seen in below.items()}
    return sorted(sorted(group) for group in found if group)


def _below(module: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    """Return all that a module imports, directly or not; itself only if it is part of a circle."""
    seen: set[str] = set()
    left = list(imports[module])
    while left:
        following = left.pop()
        if following not in seen:
            seen.add(following)
            left.extend(imports.get(following, ()))
    return seen


def imports_of(packages: Sequence[str]) -> dict[str, set[str]]:
    """Return what each module imports when it is loaded; imports for type checkers alone do not count."""
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def shared_names(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the public names that several modules define, with the modules.

    Names of classes count everywhere; those of functions and types where the library is below its faces. ``main`` is
    what runs a module.
    """
    defined: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        if "_pb2" in path.name:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = _class_name(node) or (_is_below_faces(path) and (_function_name(node) or _type_name(node)))
            if name and not name.startswith("_") and name != "main":
                defined[name].append(path)
    return {name: places for name, places in sorted(defined.items()) if len(places) > 1}


def _is_below_faces(path: Path) -> bool:
    return path.parts[0] == "memwal_core" and path.parts[1] not in FACES


def _class_name(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, ast.ClassDef) else None


def _function_name(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _type_name(node: ast.stmt) -> str | None:
    """Return the name of an alias of a type; variables of types, which are calls, mean the same everywhere."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or isinstance(node.value, ast.Call):
        return None
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    is_type = isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper()
    return target.id if is_type and isinstance(target, ast.Name) else None


def crowded_folders(paths: Iterable[Path]) -> dict[Path, int]:
    """Return the folders with too many modules, with their number; ``__init__.py`` does not count."""
    modules: dict[Path, int] = defaultdict(int)
    for path in paths:
        modules[path.parent] += path.name != "__init__.py"
    return {
        folder: number
        for folder, number in sorted(modules.items())
        if number > (TEST_FOLDER_LIMIT if folder.parts[:1] == ("tests",) else FOLDER_LIMIT)
    }


def misplaced_job_modules(paths: Iterable[Path]) -> list[Path]:
    """Return the modules of the library that are named like those of a job and are not in a job's folder."""
    return [
        path
        for path in sorted(paths)
        if path.name in JOB_MODULES and not any(path.parent.match(folder) for folder in JOB_FOLDERS)
    ]


def _modules(tops: Sequence[str]) -> list[Path]:
    return sorted(path for top in tops for path in Path(top).rglob("*.py"))


def _findings() -> Iterator[str]:
    for circle in circles(imports_of(PACKAGES)):
        yield f"these modules import each other: {', '.join(circle)}; move what they share to a module below them"
    for name, paths in shared_names(_modules(PACKAGES)).items():
        yield f"{name} is defined in {', '.join(map(str, paths))}; name each for what it is"
    for folder, number in crowded_folders(_modules(FOLDERS)).items():
        yield f"{folder}: {number} modules; put those of one role into a folder of their own"
    for path in misplaced_job_modules(_modules(PACKAGES)):
        yield f"{path}: only jobs have modules of this name; name it for what it is about"


def main() -> int:
    """Print what breaks a rule; return 1 if anything does."""
    # Packages are found from the root of the repository, whether they are installed or not.
    sys.path.insert(0, str(Path.cwd()))
    found = list(_findings())
    for finding in found:
        print(finding)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
