"""Fail where a lower bound of pyproject.toml is not what a resolution of the lowest versions has: none tries it then.

Run by `make lowest`.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def bounds(project: Mapping[str, object], extras: Iterable[str] | None) -> dict[str, Version]:
    """Return the lowest version that each requirement of a project allows.

    Args:
        project: The table `project` of a pyproject.toml.
        extras: Whose requirements count beside the core's; all if None.
    """
    optional = project["optional-dependencies"]
    assert isinstance(optional, dict)  # noqa: S101 - it is TOML, which has no types
    chosen = set(optional) - {"all", "java"} if extras is None else set(extras)
    texts = [*_texts(project["dependencies"]), *(text for name in chosen for text in _texts(optional[name]))]
    found: dict[str, Version] = {}
    for each in map(Requirement, texts):
        for specifier in each.specifier:
            if specifier.operator in (">=", "=="):
                found[canonicalize_name(each.name)] = Version(specifier.version)
    return found


def unreached(wanted: Mapping[str, Version], resolved: str) -> list[str]:
    """Return what a resolution has in other versions than the lowest that are wanted, as sentences."""
    pairs = (line.partition("==") for line in resolved.splitlines() if "==" in line)
    has: dict[str, Version] = {
        canonicalize_name(name.partition("[")[0]): Version(version.split()[0]) for name, _, version in pairs
    }
    return [
        f"{name}: pyproject.toml allows {lowest}, and {has.get(name, 'no version')} is the lowest that fits"
        for name, lowest in sorted(wanted.items())
        if has.get(name) != lowest
    ]


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def main() -> None:
    """Check the resolution in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("resolved", type=Path)
    parser.add_argument("--extras", nargs="*")
    parser.add_argument("--but", nargs="*", default=[], help="names whose bounds another resolution reaches")
    asked = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {name: low for name, low in bounds(project, asked.extras).items() if name not in asked.but}
    problems = unreached(wanted, asked.resolved.read_text())
    for problem in problems:
        print(f"lowest: {problem}")
    if problems:
        print("  next: raise the bound in pyproject.toml, or say why another resolution reaches it")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
