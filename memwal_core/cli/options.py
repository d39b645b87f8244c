"""Options that several commands share, and how results are printed as JSON."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from memwal_core.opening import open_here
from memwal_core.settings.bounds import LONGEST_S
from memwal_core.storage.options import parse_pairs, require_used
from memwal_core.table import Table
from memwal_core.vocabulary import Vocabulary

TableUri = Annotated[str, typer.Argument(help="Path or address of the table.", metavar="URI", show_default=False)]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", help="Option of the object store under pylance's name; repeatable.", metavar="KEY=VALUE"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and change nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

OutputVocabulary = Annotated[
    Vocabulary, typer.Option("--vocabulary", help="Print our words, or those that say shard; files stay as they are.")
]


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str | float) -> float:
    """Return the seconds of a duration such as ``60``, ``60s``, ``5m`` or ``1h``.

    Raises:
        typer.BadParameter: It is none, or is below a second or above a century.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", str(text).strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 1 <= seconds <= LONGEST_S:
        raise typer.BadParameter("write at least a second and at most a century, as in 60s, 5m or 1h")
    return seconds


def parse_seconds_or_never(text: str | float) -> float:
    """Return the same, and 0 for 0."""
    return 0.0 if str(text).strip() == "0" else parse_seconds(text)


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(as_json(document, indent=2))


def as_json(document: object, indent: int | None = None) -> str:
    """Return a document as JSON; numbers that JSON does not know, NaN and the infinities, are their names as text."""
    try:
        return json.dumps(document, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(document), parse_constant=str), indent=indent)


def options_for(storage_options: list[str] | None, *uris: str) -> dict[str, str]:
    """Return the storage options that a command was given for some addresses.

    Raises:
        InvalidRequestError: One is malformed, or all addresses are local paths, which would ignore it.
    """
    options = parse_pairs(storage_options)
    require_used(options, *uris)
    return options


def open_table(uri: str, storage_options: list[str] | None, *, even_if_damaged: bool = False) -> Table:
    """Open the table of a command; arguments and errors as for ``open_here``."""
    return open_here(uri, options_for(storage_options, uri), even_if_damaged=even_if_damaged)
