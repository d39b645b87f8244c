"""Child processes of the demonstration: watched line by line, measured, and ended with their parent."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memwal_core.clock import Clock

GRACE_S = 10.0
"""How long interrupted programs may take to end by themselves."""

_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run.

    Attributes:
        name: What people call it; also the name of its log file.
        arguments: The program and its arguments.
        environment: All its variables.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended.

    Attributes:
        name: As in its command.
        exit_code: 0 for success; negative is the signal that ended it.
        seconds: From start to end.
        peak_bytes: Largest resident size of any one process: the program itself or one that it started and
            waited for. Never below the parent's own at the start, because the system measures it so.
        log: The file with everything it printed.
    """

    name: str
    exit_code: int
    seconds: float
    peak_bytes: int
    log: Path


@dataclass(slots=True)
class _Running:
    command: Command
    process: subprocess.Popen[bytes]
    log: Path
    sink: BinaryIO
    started: float
    pending: bytes = b""
    finished: Finished | None = None


def run_all(
    commands: Sequence[Command],
    logs: Path,
    clock: Clock,
    on_line: Callable[[Command, str], None],
    *,
    grace_s: float = GRACE_S,
) -> list[Finished]:
    """Run programs at the same time until all have ended.

    Each program leads a process group of its own. Whatever interrupts this call ends all groups first, so
    that nothing is left behind.

    Args:
        commands: What to run.
        logs: Directory for one log file each, standard output and error together.
        clock: Measures, and waits for interrupted programs.
        on_line: Called with each line of output, without its end.
        grace_s: Seconds that interrupted programs have to end by themselves before they are killed.

    Returns:
        How each ended, in the order of ``commands``.
    """
    with ExitStack() as cleanup:
        selector = cleanup.enter_context(selectors.DefaultSelector())
        running = []
        for command in commands:
            running.append(each := _start(command, logs, clock))
            cleanup.callback(_end, each, clock, grace_s)
            assert each.process.stdout is not None  # noqa: S101 - it was asked for
            selector.register(each.process.stdout, selectors.EVENT_READ, each)
        while selector.get_map():
            for key, _ in selector.select():
                if not _read(key.data, on_line):
                    selector.unregister(key.fileobj)
                    key.data.finished = _reap(key.data, clock)
        return [each.finished for each in running if each.finished is not None]


def _start(command: Command, logs: Path, clock: Clock) -> _Running:
    log = logs / f"{command.name}.log"
    sink = log.open("wb")
    process = subprocess.Popen(  # noqa: S603 - our own programs, no shell
        command.arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(command.environment),
        start_new_session=True,
    )
    return _Running(command, process, log, sink, clock.monotonic())


def _read(running: _Running, on_line: Callable[[Command, str], None]) -> bool:
    """Take what the program has printed; return whether more may come."""
    assert running.process.stdout is not None  # noqa: S101 - it was asked for
    chunk = os.read(running.process.stdout.fileno(), _CHUNK_BYTES)
    running.sink.write(chunk)
    running.sink.flush()
    *lines, running.pending = (running.pending + chunk).split(b"\n")
    if not chunk and running.pending:
        lines.append(running.pending)
    for line in lines:
        on_line(running.command, line.decode(errors="replace").rstrip("\r"))
    return bool(chunk)


def _reap(running: _Running, clock: Clock) -> Finished:
    # Not Popen.wait, which throws away what the system measured.
    _, status, usage = os.wait4(running.process.pid, 0)
    running.process.returncode = os.waitstatus_to_exitcode(status)
    seconds = clock.monotonic() - running.started
    peak = usage.ru_maxrss * _RSS_UNIT_BYTES
    return Finished(running.command.name, running.process.returncode, seconds, peak, running.log)


def _end(running: _Running, clock: Clock, grace_s: float) -> None:
    """End what is left of a program's process group, if it did not end by itself."""
    running.sink.close()
    if running.process.stdout is not None:
        running.process.stdout.close()
    if running.finished is not None:
        return
    group = running.process.pid
    # macOS refuses to signal a group in which only ended processes are left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        until = clock.monotonic() + grace_s
        while clock.monotonic() < until:
            running.process.poll()
            os.killpg(group, 0)
            clock.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
    running.process.wait()
