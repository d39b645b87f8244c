"""The list of bug classes in docs/testing.md is whole: each has tests, and their names are checked elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLASSES = 45


def rows() -> list[list[str]]:
    section = (ROOT / "docs" / "testing.md").read_text().partition("## Bug classes")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_bug_class_is_listed_once_and_in_order() -> None:
    assert [int(row[0]) for row in rows()] == list(range(1, CLASSES + 1))


def test_every_bug_class_names_a_test_that_exists() -> None:
    existing = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.M)
    }
    named = {row[0]: re.findall(r"`(test_\w+)`", row[3]) for row in rows()}

    assert {number: tests for number, tests in named.items() if not tests} == {}
    assert {number: set(tests) - existing for number, tests in named.items() if set(tests) - existing} == {}


def test_classes_named_in_tests_are_listed() -> None:
    cited = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for found in re.findall(r"[Bb]ug class(?:es)? ([\d, and]+)", path.read_text())
        for number in re.findall(r"\d+", found)
    }

    assert cited <= set(range(1, CLASSES + 1))
