"""`memwal schema`, `head`, `count` and `lookup`: looking at a table as one, merged or not."""

from __future__ import annotations

import json as json_format
import sys
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console

from memwal_core.base_table import TableState
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, StorageOptions, TableUri, open_table, print_json
from memwal_core.cli.show import show_grid
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid
from memwal_core.native.python_values import python_values
from memwal_core.reader import Consistency
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec.describe import describe_spec

_LONGEST_CELL = 60
_ROWS_OF_A_GRID = 1000
"""Widths of columns follow from all rows of a grid, so that none is shown before."""

Filter = Annotated[str | None, typer.Option("--filter", help="Condition, in Lance's SQL.", metavar="SQL")]
Columns = Annotated[list[str] | None, typer.Option("--column", help="Only this column. Repeatable.", metavar="COLUMN")]
How = Annotated[
    Consistency,
    typer.Option(help="Where to look for rows that are not merged yet; `durable` sees every acknowledged one."),
]


def schema(uri: TableUri, storage_option: StorageOptions = None, json: AsJson = False) -> None:
    """Show columns, primary key, regions and indexes.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    state = table.base.state()
    indexes = [(each.name, each) for each in table.base.indexes(state.version) if not each.name.startswith("__")]
    maintained = set(state.details.maintained_indexes) if state.details is not None else set()
    columns = [(name, str(state.schema.field(name).type), *_marks(state, name)) for name in state.schema.names]
    if json:
        print_json(
            {
                "table_uri": table.uri,
                "version": state.version,
                "columns": [
                    {"name": name, "type": kind, "nullable": state.schema.field(name).nullable}
                    for name, kind, *_ in columns
                ],
                "key": list(state.primary_key.columns),
                "regions": _specs(state),
                "indexes": {name: name in maintained for name, _ in indexes},
            }
        )
        return
    console = Console(highlight=False)
    show_grid(Grid(("column", "type", "NULL", "key"), tuple(columns)), console)
    console.print(f"regions: {'; '.join(_specs(state)) or 'MemWAL is not enabled'}", markup=False, soft_wrap=True)
    for name, _ in indexes:
        console.print(f"index {name}{': MemTables maintain it' if name in maintained else ''}", markup=False)


@may_find_nothing
def head(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=100_000, help="How many rows.")] = 10,
    column: Columns = None,
    filter_sql: Filter = None,
    consistency: How = Consistency.DURABLE,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show some rows, the newest version of each, merged or not.

    Exit codes: 0 done, 2 bad input, 3 there is no such row, 4 storage failure (try again).
    """
    request = ScanRequest(columns=tuple(column) if column else None, filter_sql=filter_sql, limit=rows)
    _show_rows(open_table(uri, storage_option).to_arrow(request, consistency=consistency), json=json)


def count(
    uri: TableUri,
    filter_sql: Filter = None,
    consistency: How = Consistency.DURABLE,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Count rows, merged or not.

    Exit codes: 0 done, 2 bad input, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    number = table.count(filter_sql, consistency=consistency)
    if json:
        print_json({"table_uri": table.uri, "rows": number})
    else:
        typer.echo(number)


@may_find_nothing
def lookup(
    uri: TableUri,
    key: Annotated[
        list[str],
        typer.Argument(
            help="Keys; those of several columns as JSON lists, as in '[1, \"a\"]'; binary in hexadecimal digits; "
            "behind -- if one begins with a dash, as in: lookup people.lance -- -5",
            metavar="KEY...",
        ),
    ],
    column: Columns = None,
    consistency: How = Consistency.DURABLE,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Show the newest version of the rows with some keys.

    Exit codes: 0 all were found, 2 bad input, 3 at least one does not exist, 4 storage failure (try again).
    """
    table = open_table(uri, storage_option)
    state = table.base.state()
    keys = keys_of(state, key)
    found = table.lookup(keys, columns=tuple(column) if column else None, consistency=consistency)
    _show_rows(found, json=json, wanted=keys.group_by(keys.column_names).aggregate([]).num_rows)


def _marks(state: TableState, name: str) -> tuple[str, str]:
    position = str(state.primary_key.columns.index(name) + 1) if name in state.primary_key.columns else ""
    return "yes" if state.schema.field(name).nullable else "", position


def _specs(state: TableState) -> list[str]:
    details = state.details
    return [] if details is None else [describe_spec(spec, state.field_ids) for spec in details.region_specs]


def keys_of(state: TableState, texts: list[str]) -> pa.Table:
    """Return keys from their texts, JSON lists for several columns; ``InvalidRequestError`` if they do not fit."""
    columns = state.require_primary_key().columns
    rows = [_parts(text, len(columns)) for text in texts]
    arrays = {}
    for name, values in zip(columns, zip(*rows, strict=True), strict=True):
        kind = state.schema.field(name).type
        try:
            given = [None if value is None else _spelled(value, kind) for value in values]
            arrays[name] = pa.array(given).cast(kind)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidRequestError(
                "this key does not have the type of its column",
                remedy="correct it; binary is written in hexadecimal digits",
                column=name,
                type=str(kind),
                keys=texts[:5],
            ) from error
    return pa.table(arrays)


def _spelled(value: object, kind: pa.DataType) -> str | bytes:
    """Return what a key's text stands for: binary is written as it is shown, in hexadecimal digits."""
    text = str(value)
    return bytes.fromhex(text) if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else text


def _parts(text: str, number: int) -> list[Any]:
    if number == 1:
        return [text]
    try:
        parts = json_format.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != number:
        raise InvalidRequestError(
            "the key has several columns", remedy="write each key as a JSON list", key=text, columns=number
        )
    return parts


def _show_rows(rows: pa.Table, *, json: bool, wanted: int = 1) -> None:
    names, columns = rows.column_names, [python_values(column) for column in rows.columns]
    if json:
        shown = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        print_json({"rows": json_format.loads(json_format.dumps(shown, default=_as_text))})
    elif rows.num_rows:
        console = Console(highlight=False)
        for start in range(0, rows.num_rows, _ROWS_OF_A_GRID):
            cells = [[_cell(value) for value in column[start : start + _ROWS_OF_A_GRID]] for column in columns]
            show_grid(Grid(tuple(names), tuple(zip(*cells, strict=True))), console)
    if not json and rows.num_rows < wanted:
        told = f"{wanted - rows.num_rows} of {wanted} keys have no row" if wanted > 1 else "no such row"
        typer.echo(told, err=True)
    outcome = JobOutcome.DONE if rows.num_rows >= wanted else JobOutcome.NOTHING_TO_DO
    sys.exit(outcome.exit_code)


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _cell(value: object) -> str:
    text = "NULL" if value is None else _as_text(value)
    shown = text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
    return "".join(each if each.isprintable() else "�" for each in shown)
