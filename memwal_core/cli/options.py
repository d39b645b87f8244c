"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from memwal_core.admin import TableAdmin
from memwal_core.errors import InvalidRequestError
from memwal_core.settings import load_settings
from memwal_core.vocabulary import Vocabulary

TableUri = Annotated[str, typer.Argument(help="Path or address of the table.", metavar="URI", show_default=False)]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", help="Option of the object store under pylance's name; repeatable.", metavar="KEY=VALUE"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]

OutputVocabulary = Annotated[
    Vocabulary, typer.Option("--vocabulary", help="Print our words, or those that say shard; files stay as they are.")
]

STORAGE_OPTIONS_VARIABLE = "MAINTENANCE_STORAGE_OPTIONS"
"""Storage options as JSON: how an orchestrator hands secrets to a job without showing them to everybody."""

_MIB = 1024 * 1024


def parse_storage_options(texts: Sequence[str] | None) -> dict[str, str]:
    """Read ``key=value`` pairs.

    Raises:
        InvalidRequestError: A text has no ``=`` or an empty key.
    """
    options: dict[str, str] = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            # The text may be a secret whose key was forgotten: it is not repeated.
            raise InvalidRequestError(
                "a storage option is not of the form key=value", remedy="write --storage-option key=value"
            )
        options[key] = value
    return options


def environment_storage_options() -> dict[str, str]:
    """Return the storage options that the environment has; none if there are none.

    Raises:
        InvalidRequestError: The variable is no JSON object of texts.
    """
    text = os.environ.get(STORAGE_OPTIONS_VARIABLE)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        # Not repeated and not chained: the text may be a secret.
        raise InvalidRequestError(
            "the storage options of the environment are no JSON object of texts",
            remedy=f"correct {STORAGE_OPTIONS_VARIABLE}",
        )
    return found


def open_admin(uri: str, storage_options: Sequence[str] | None) -> TableAdmin:
    """Open a table with the settings and storage options of the environment, and hand Lance its memory bound.

    Args:
        uri: Path or address.
        storage_options: ``key=value`` pairs, which go before those of the environment.

    Raises:
        InvalidRequestError: Settings or options cannot be used.
        ObjectNotFoundError: There is no table at the address.
    """
    options = {**environment_storage_options(), **parse_storage_options(storage_options)}
    settings = load_settings()
    os.environ.setdefault("LANCE_MEM_POOL_SIZE", str(settings.merge.lance_memory_pool_bytes))
    return TableAdmin.open(uri, storage_options=options or None, settings=settings)


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, sort_keys=False))


def show_bytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size:,} B"
