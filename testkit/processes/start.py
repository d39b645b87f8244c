"""The processes of tests: they start in milliseconds, and a test may kill them at any moment.

They come from one server that has imported everything and used nothing: Lance may not be forked once it has begun
to work. A test process has one such server, whoever asks for it first, so there is one list of what it imports.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess

LONGEST_WAIT_S = 300.0
"""How long a right process may take to say its next word on a busy machine; afterwards it counts as hung."""

_IMPORTED_BEFORE = (
    "testkit.processes.command",
    "testkit.processes.job",
    "testkit.processes.lancedb_client",
    "testkit.processes.native_writer",
    "testkit.processes.writer",
    "testkit.faults.faulty_proxy",
    "testkit.s3_server",
    # Jobs import it at their first commit, which on a busy machine takes longer than most processes live here.
    "memwal_core.base_table.commit.version_catalog",
    # Every process runs the main module of its test anew, and that imports them.
    "hypothesis",
    "pytest",
)


def process_context() -> ForkServerContext:
    """Return where processes, and memory that they share, come from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED_BEFORE))
    return context


def start_process(
    target: Callable[..., None], *arguments: object, duplex: bool = False
) -> tuple[ForkServerProcess, Connection]:
    """Start a process with the environment that this one has now, and not the one its server began with.

    Args:
        target: A function of a module; called with the arguments and, last, the process's end of a connection.
        *arguments: Values that can be pickled, or shared memory of ``process_context``.
        duplex: Whether this process may talk, too.

    Returns:
        The process and this process's end of the connection.
    """
    context = process_context()
    ours, theirs = context.Pipe(duplex=duplex)
    process = context.Process(target=_run, args=(dict(os.environ), target, (*arguments, theirs)), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _run(environment: Mapping[str, str], target: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
