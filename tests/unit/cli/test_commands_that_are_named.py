"""What errors, findings and pages tell people to run exists, with the options that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit import commands as shell

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted((ROOT / "memwal_core").rglob("*.py"))
# Decisions tell what was chosen when they were written; a later one may have chosen other words.
PAGES = sorted(
    [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions")]
)

NAMED = re.compile(r"`memwal ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Options of programs that are not ours, and of our own that are no commands of `memwal`.
OF_OTHERS = {"--packages", "--conf", "--master"}


def problem_of(line: str) -> str | None:
    """Return what is wrong with a command line after `memwal`; None if it exists."""
    words = line.replace("|", " ").replace("[", " ").replace("]", " ").split()
    found = shell.commands()
    path = next((tuple(words[:length]) for length in (2, 1) if tuple(words[:length]) in found), None)
    if path is None:
        is_about_all = words[0] in ("...", "COMMAND") or words[0].startswith("-") or tuple(words) in shell.groups()
        return None if is_about_all else f"there is no `memwal {line}`"
    unknown = set(OPTION.findall(line)) - shell.options_of(found[path])
    return f"`memwal {' '.join(path)}` has no {', '.join(sorted(unknown))}" if unknown else None


def texts(module: Path) -> Iterator[str]:
    """Yield every text of a module; what is filled in later stands as a word."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "VALUE" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def remedies(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            yield " ".join(
                str(each.value)
                for each in ast.walk(node.value)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def test_commands_that_texts_of_the_package_name_exist() -> None:
    named = [(module.name, line) for module in MODULES for text in texts(module) for line in NAMED.findall(text)]

    assert len(named) > 40
    assert [(where, found) for where, line in named if (found := problem_of(line))] == []


def test_options_that_remedies_name_exist() -> None:
    known = set().union(*(shell.options_of(each) for each in shell.commands().values())) | OF_OTHERS
    named = [
        (module.name, option) for module in MODULES for text in remedies(module) for option in OPTION.findall(text)
    ]

    assert len(named) > 8
    assert [(where, option) for where, option in named if option not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_pages_name_exist(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    lines = [line for block in blocks for line in re.findall(r"^\s*(?:\$ )?memwal (.+?)(?:\s*\\?)$", block, re.M)]

    assert [found for line in [*lines, *NAMED.findall(text)] if (found := problem_of(line.partition(" #")[0]))] == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("merge t --dry-run", False),
        ("index maintain t i", False),
        ("index", False),
        ("merge t --nothing", True),
        ("mend t", True),
        ("index mend t", True),
    ],
)
def test_what_does_not_exist_is_found(line: str, is_wrong: bool) -> None:
    assert bool(problem_of(line)) == is_wrong
