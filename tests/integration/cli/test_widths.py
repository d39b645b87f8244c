"""Every command that reads can be read at 80 columns, and uses a wide terminal, also where names are long."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.table import Table

LONG = "a_column_with_a_name_that_took_its_author_and_two_of_his_friends_a_long_time"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field(LONG, pa.string(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
KEY = f'[1, "tenant/{"x" * 30}/1"]'
COMMANDS = {
    "tables": ["{root}"],
    "status": ["{uri}"],
    "status --check": ["{uri}"],
    "schema": ["{uri}"],
    "head": ["{uri}", "-n", "2"],
    "count": ["{uri}"],
    "lookup": ["{uri}", KEY],
    "checks": ["{uri}"],
    "doctor": ["{uri}"],
    "why": ["{uri}", "{region}"],
    "explain": ["{uri}"],
    "history": ["{uri}"],
    "merge --dry-run": ["{uri}"],
    "gc": ["{uri}"],
    "maintain --dry-run": ["{uri}"],
}
TABLE_FROM = {"status": 120, "head": 120, "lookup": 120, "merge --dry-run": 120}
"""Commands whose grids are blocks of lines at 80 columns -> columns at which they are tables."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("wide")
    table = Table.create(str(root / f"table_{'long_' * 12}name"), SCHEMA, key=["id", LONG], regions=["bucket(id, 3)"])
    columns = [list(range(12)), [f"tenant/{'x' * 30}/{n}" for n in range(12)], ["Lorem ipsum dolor sit amet " * 6] * 12]
    with table.writer() as writer:
        writer.put(pa.table(columns, schema=SCHEMA))
        writer.flush()
    region = str(table.status().regions[0].region_id)
    return {"root": str(root), "uri": table.uri, "region": region}


def lines_of(command: str, places: dict[str, str], width: int) -> list[str]:
    name, *options = command.split()
    # A format would take the braces of no key for its own.
    arguments = [each.format(**places) if each.startswith("{") else each for each in COMMANDS[command]]
    ended = CliRunner().invoke(app, [name, *arguments, *options], env={"COLUMNS": str(width)})
    assert ended.exit_code in {0, 3}, ended.output
    return ended.output.splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_grids_fit_the_terminal_and_break_no_value_into_letters(
    command: str, width: int, places: dict[str, str]
) -> None:
    """At 80 columns each value of a row stood beside its column's name, one letter a line."""
    lines = lines_of(command, places, width)

    grids = [line for line in lines if line.startswith(("┏", "┃", "┡", "│", "└"))]
    assert all(len(line) <= width for line in grids)
    shortest = [len(list(group)) for short, group in groupby(len(line.strip()) <= 2 for line in lines) if short]
    assert max(shortest, default=0) < 3, "\n".join(lines)
    if command in TABLE_FROM:
        assert bool(grids) == (width >= TABLE_FROM[command]), "\n".join(lines)
    if command in {"head", "lookup"}:
        assert any(LONG in line for line in lines)
        assert any(f"tenant/{'x' * 30}/" in line for line in lines)
