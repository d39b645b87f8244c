"""How commands end: errors for people on stderr, for machines as JSON on stdout, and what if that cannot be written."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from memwal_core.errors import MemwalError, UnavailableError
from memwal_core.redaction import redact, show_unexpected

JSON = "--json"
USAGE_EXIT_CODE = 2
INTERRUPTED_EXIT_CODE = 130
"""Of a shell for a process that Ctrl-C ended."""
TERMINATED_EXIT_CODE = 143
"""Of a shell for a process that SIGTERM ended."""
READER_GONE_EXIT_CODE = 141
"""Of a shell for a process that SIGPIPE ended."""


class Terminated(SystemExit):
    """SIGTERM, as `timeout`, systemd and Kubernetes send it: the command gives its leases back, and ends."""

    def __init__(self) -> None:
        super().__init__(TERMINATED_EXIT_CODE)


def heed_termination() -> None:
    """Let SIGTERM end what the main thread does, unless it is ignored, as whoever began the process may want it."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


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


def end_process(code: int, *, hangs: bool) -> NoReturn:
    """End at once, however threads hang: native code in one that was given up may crash while the interpreter ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if hangs:
        os._exit(code)
    sys.exit(code)


def print_error(error: BaseException, exit_code: int, what: str = "", remedy: str = "") -> None:
    """Print an error on stdout, as one JSON document; docs/errors.md describes it."""
    known = isinstance(error, MemwalError)
    said = error.what if isinstance(error, MemwalError) else what or "".join(traceback.format_exception_only(error))
    following = error.remedy if isinstance(error, MemwalError) else remedy or "report it, with what is on stderr"
    document = {
        "outcome": "error",
        "exit_code": exit_code,
        "error": {
            "class": type(error).__name__ if known or exit_code != USAGE_EXIT_CODE else "UsageError",
            "what": redact(said.strip()),
            "next": redact(following),
            "facts": {name: _plain(value) for name, value in error.facts.items()} if known else {},  # type: ignore[attr-defined]
        },
    }
    try:
        sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
        sys.stdout.flush()
    except UnavailableError as unwritten:
        show_error(unwritten)  # The exit code is still that of the error.


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


def guard_stdout() -> None:
    """Give the process a standard output that ends it quietly when nobody reads on, and names what else is wrong."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        old = sys.stdout
        # As stderr does: what a terminal cannot show must not end a command whose work is done.
        sys.stdout = _Stdout(
            old.detach(), encoding=old.encoding, errors="backslashreplace", line_buffering=old.line_buffering
        )


class _Stdout(io.TextIOWrapper):
    def write(self, text: str) -> int:
        with self._explained():
            return super().write(text)

    def flush(self) -> None:
        with self._explained():
            super().flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._give_up()
            sys.exit(READER_GONE_EXIT_CODE)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        self._give_up()
        raise UnavailableError(
            "what the command prints cannot be written",
            remedy="free space, or print elsewhere, and run it again; what it did stands",
            output="stdout",
            reason=str(error),
        ) from error

    def _give_up(self) -> None:
        """Let what is still buffered go nowhere: Python writes it when the process ends, and would fail again."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
