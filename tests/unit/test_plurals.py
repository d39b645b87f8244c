"""What people read counts things in one way, so that nothing has "1 rows": ``memwal_core.text.show_count``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwal_core.text import show_count

ROOT = Path(__file__).resolve().parents[2]
THINGS = "batch|column|file|fragment|generation|index|job|key|MemTable|region|request|row|run|table|version"
SEVERAL = re.compile(rf"(?:flushed |WAL |base |Lance |MemWAL )?(?:(?:{THINGS})e?s|entries)\b")


def counted_by_hand(source: str) -> Iterator[str]:
    """Yield each value of an f-string before a plural; the whole in "1 of 3 rows" is right as it is."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part, following in zip(node.values, [*node.values[1:], ast.Constant("")], strict=True):
            text = following.value if isinstance(following, ast.Constant) else ""
            is_value = isinstance(part, ast.FormattedValue)
            if is_value and isinstance(text, str) and re.match(rf" {SEVERAL.pattern}", text) and before[-4:] != " of ":
                yield f"{node.lineno}: {ast.unparse(part.value) if is_value else ''}{text}"
            before = str(part.value) if isinstance(part, ast.Constant) else ""


def test_nothing_but_the_one_home_counts_things_for_people() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{place}"
        for path in (ROOT / "memwal_core").rglob("*.py")
        for place in counted_by_hand(path.read_text())
    }

    assert found == set()


def test_hand_made_plurals_are_found() -> None:
    assert list(counted_by_hand('f"{n} rows in {len(a)} files"')) == ["1: n rows in ", "1: len(a) files"]
    assert list(counted_by_hand('f"{n} of {m} rows, {show_count(n, 1)} more, {name} is"')) == []


@pytest.mark.parametrize(
    ("number", "name", "shown"),
    [
        (0, "row", "0 rows"), (1, "row", "1 row"), (1234, "row", "1,234 rows"), (2, "WAL entry", "2 WAL entries"),
        (1, "index", "1 index"), (2, "index", "2 indexes"), (2, "batch", "2 batches"),
    ],
)  # fmt: skip
def test_counts_have_the_number_of_their_things(number: int, name: str, shown: str) -> None:
    assert show_count(number, name) == shown
