"""The table of safety rules in docs/testing.md names every mutant once, and counters that simulations insist on."""

from __future__ import annotations

import re
from pathlib import Path

from testkit.simulation.contests import WriteKind
from tests.simulation import test_divided, test_simulation, test_strangers
from tools.mutate import listed

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
HEADING = "### Safety rules, and what bites"
NOT_SIMULATED = re.compile("harness of their own|not simulated")


def _rows() -> list[list[str]]:
    table = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_table_of_safety_rules_is_complete() -> None:
    named = [name for row in _rows() for name in re.findall(r"`([a-z-]+)`", row[2])]
    mutants, _ = listed()
    assert sorted(named) == sorted(mutant.name for mutant in mutants)

    scenes = (test_simulation, test_strangers, test_divided)
    insisted = {*(name for each in scenes for name in each.MUST_HAPPEN), *(kind.lost for kind in WriteKind)}
    counted = [row[3] for row in _rows() if not NOT_SIMULATED.search(row[3])]
    assert [each for cell in counted for each in cell.split(", ") if each not in insisted] == []
