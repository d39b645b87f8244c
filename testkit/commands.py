"""The commands of `memwal` as a program sees them: their names, and the options that each understands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import typer

from memwal_core.cli.app import app

Path = tuple[str, ...]


@cache
def commands() -> Mapping[Path, Any]:
    """Return every command by its words, groups left out."""
    return dict(_below((), typer.main.get_command(app)))


def groups() -> set[Path]:
    """Return the words that only begin a command."""
    return {path[:length] for path in commands() for length in range(1, len(path))}


def options_of(command: Any) -> set[str]:  # noqa: ANN401 - Typer's classes have no public name
    """Return the options that a command understands, with their dashes."""
    named = {name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    return {*named, "--help"}


def _below(path: Path, command: Any) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from _below((*path, name), each)
