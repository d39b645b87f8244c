"""How commands end with an error: for people on stderr, for machines as JSON on stdout."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from memwal_core.errors import MemwalError
from memwal_core.redaction import redact, show_unexpected

JSON = "--json"
USAGE_EXIT_CODE = 2


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Tell whether a command line asks for one JSON document, errors included."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return JSON in options


def end_with(error: BaseException, *, json_wanted: bool) -> int:
    """Tell an error, on stderr for people and if it is wanted on stdout for machines; return the exit code."""
    code = error.exit_code if isinstance(error, MemwalError) else 1
    if isinstance(error, MemwalError):
        show_error(error)
    else:
        show_unexpected(error)
    if json_wanted:
        print_error(error, code)
    return code


def print_error(error: BaseException, exit_code: int, what: str = "", remedy: str = "") -> None:
    """Print an error on stdout, as one JSON document; docs/errors.md describes it."""
    known = isinstance(error, MemwalError)
    said = error.what if isinstance(error, MemwalError) else what or "".join(traceback.format_exception_only(error))
    following = error.remedy if isinstance(error, MemwalError) else remedy or "report it, with what is on stderr"
    document = {
        "outcome": "error",
        "exit_code": exit_code,
        "error": {
            "class": type(error).__name__ if known or not what else "UsageError",
            "what": redact(said.strip()),
            "next": redact(following),
            "facts": {name: _plain(value) for name, value in error.facts.items()} if known else {},  # type: ignore[attr-defined]
        },
    }
    sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
    sys.stdout.flush()


def show_error(error: MemwalError) -> None:
    """Print what happened, the facts and what to do next, on stderr."""
    # Only where the extra of the command line is installed.
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"error: {error.what}", style="bold red", markup=False)
    for name, value in error.facts.items():
        if value is None:
            continue
        console.print(redact(f"  {name}: {value}"), markup=False)
    console.print(f"next: {error.remedy}", style="bold", markup=False)


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """Return a fact as JSON, where it can be, and with its secrets replaced."""
    try:
        return json.loads(redact(json.dumps(value)))
    except (TypeError, ValueError):
        return redact(str(value))
