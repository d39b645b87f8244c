"""The ``memwal`` command in processes of its own."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection

from memwal_core.cli import main
from memwal_core.errors import InternalError
from testkit.processes.start import LONGEST_WAIT_S, start_process


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code.
        stdout: What it printed.
        stderr: What it complained about.
    """

    code: int
    stdout: str
    stderr: str


def run_command(arguments: Sequence[str], environment: Mapping[str, str]) -> Ended:
    """Run ``memwal`` with arguments in a process of its own and wait for its end.

    Args:
        arguments: The sub-command and what follows.
        environment: Variables added to those of this process.

    Raises:
        InternalError: It did not end in time, or ended without a word.
    """
    process, receiving = start_process(_run, list(arguments), dict(environment))
    try:
        if not receiving.poll(LONGEST_WAIT_S):
            raise InternalError("a command did not end", remedy="read its output", arguments=list(arguments))
        code, stdout, stderr = receiving.recv()
    except EOFError as error:
        raise InternalError("a command was killed", remedy="read its output", arguments=list(arguments)) from error
    finally:
        process.kill()
        process.join()
        receiving.close()
    return Ended(code, stdout, stderr)


def _run(arguments: list[str], environment: dict[str, str], messages: Connection) -> None:
    os.environ.update(environment)
    out, err = io.StringIO(), io.StringIO()
    code: int | str | None = 0
    sys.argv = ["memwal", *arguments]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    messages.send((code if isinstance(code, int) else int(bool(code)), out.getvalue(), err.getvalue()))
