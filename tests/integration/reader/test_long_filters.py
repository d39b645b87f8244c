"""No filter ends the process, in whatever way it reaches Lance: what is too deep for its stack is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import make_people_table, people

WORKER = Path(__file__).with_name("filter_worker.py")
WAYS = ("scan", "count", "explain", "matching", "spark")
MANY = "a filter has more conditions than Lance can evaluate"
LONG = "a condition of a filter is longer than Lance can evaluate"


def _ones(number: int) -> str:
    return "+".join(["1"] * number)


def _pairs(number: int) -> str:
    return " OR ".join(f"(id = {each + 3} AND score >= 0)" for each in range(number))


ANSWERED = {
    "conditions": _pairs(2_500),
    "conditions that are joined with others": f"id >= 3 AND NOT NOT ({_pairs(500)})",
    "values": f"id IN ({', '.join(map(str, range(3, 20_003)))})",
    "summands": f"id >= {_ones(3)} + 0*({_ones(110)})",
    "summands in many conditions": " OR ".join(f"id >= 3 + 0*({_ones(100)}) + {each}" for each in range(10)),
    "casts": f"id{'::bigint' * 80} >= 3",
    "parentheses": f"{'(' * 40}id >= 3{')' * 40}",
}
REFUSED = {
    "conditions": (_pairs(20_000), MANY),
    "alternating conditions": (" OR ".join(["id = 1 AND score = 2"] * 20_000), MANY),
    "summands": (f"id > {_ones(1_000)}", LONG),
    "summands before": (f"{_ones(10_000)} < id", LONG),
    "summands of columns": (f"id < {'+'.join(['id'] * 10_000)}", LONG),
    "summands in parentheses": (f"id < {'(1 + ' * 40}{_ones(100)}{f' + {_ones(20)})' * 40}", LONG),
    "texts": (f"name = {'||'.join(['name'] * 1_000)}", LONG),
    "casts": (f"id{'::bigint' * 1_000} = 1", LONG),
    "tests": (f"id{' IS NULL' * 1_000}", LONG),
    "comparisons": ("=".join(["true"] * 1_000), LONG),
    "subscripts": (f"name{'[1]' * 10_000} = 1", LONG),
    "negations": (f"{'NOT ' * 10_000}id = 1", LONG),
    "parentheses": (f"{'(' * 1_000}id = 1 {' + 1)' * 1_000}", LONG),
    "cases": (f"{'CASE WHEN id = 1 THEN ' * 1_000}1{' END' * 1_000} = 1", LONG),
}


def _answers(uri: str, filters: dict[str, str]) -> dict[str, dict[str, object]]:
    """Let a child ask: an overflow of a stack cannot be caught."""
    with TableWriter.open(make_people_table(uri, rows=people(*range(4)))) as writer:
        writer.put(people(4))
        writer.flush()
        Table.open(uri).run(MergeRequest())
        writer.put(people(5))
        writer.flush()
    child = subprocess.run(
        [sys.executable, str(WORKER), uri], input=json.dumps(filters), capture_output=True, text=True, check=False
    )
    found = dict(json.loads(line) for line in child.stdout.splitlines())
    assert (child.returncode, found.keys()) == (0, filters.keys()), child.stderr
    return found


def test_filters_as_long_as_allowed_are_answered(tmp_path: Path) -> None:
    expected = {"scan": 3, "count": 3, "explain": None, "matching": 2, "spark": None}
    assert _answers(str(tmp_path / "t"), ANSWERED) == dict.fromkeys(ANSWERED, expected)


def test_filters_that_would_overflow_a_stack_are_refused_in_every_way(tmp_path: Path) -> None:
    asked = {kind: condition for kind, (condition, _) in REFUSED.items()}
    refused = {kind: dict.fromkeys(WAYS, problem) for kind, (_, problem) in REFUSED.items()}
    assert _answers(str(tmp_path / "t"), asked) == refused
