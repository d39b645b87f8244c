"""Processes that do for another one what may end them: native libraries abort where bytes are not as they expect."""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from memwal_core.clock import SystemClock

_ATTEMPTS = 2
_PIECE_BYTES = 65_536
_CLOCK = SystemClock()
_OWN_FAULTS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


class ProcessEndedError(RuntimeError):
    """The process ended instead of answering.

    Attributes:
        returncode: As ``subprocess`` says it.
        crashed: Whether it ended at what it was asked; else somebody ended it, or memory was short.
    """

    def __init__(self, returncode: int) -> None:
        """Say how it ended."""
        super().__init__(f"the process ended with {name_of(returncode)}")
        self.returncode = returncode
        self.crashed = -returncode in _OWN_FAULTS


class ProcessSilentError(RuntimeError):
    """The process did not answer in time, and was ended."""


class ChildProcesses:
    """Processes of one module, started when they are needed; each answers one question at a time. Safe for threads.

    The module reads JSON documents from standard input, one a line, answers each with one, and ends when its input
    does. It may also end with 0 when it is asked nothing for a while.

    Args:
        module: What ``python -m`` runs.
        max_processes: How many run at once; more questions wait. None: as many as there are questions.
        timeout_s: Seconds in which an answer has to come; None: however long.
        retry_if_killed: Whether a question is asked again if somebody ended the process; else only if it ended with 0.
        inherit_stderr: Whether standard error is the one of this process; else it goes nowhere.
        environment: Of the processes; this one's if None.
    """

    def __init__(
        self,
        module: str,
        *,
        max_processes: int | None = None,
        timeout_s: float | None = None,
        retry_if_killed: bool = True,
        inherit_stderr: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing yet."""
        self._module = module
        self._max_processes = max_processes
        self._timeout_s = timeout_s
        self._retry_if_killed = retry_if_killed
        self._inherit_stderr = inherit_stderr
        self._environment = environment
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        self._children: list[_Child] = []
        for _ in range(max_processes or 0):
            self._idle.put(self._new())

    def ask(self, question: object, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the answer, in ``timeout_s`` if that is given.

        Raises:
            ProcessEndedError: There is none, because the process ended.
            ProcessSilentError: There is none in time.
        """
        child = self._taken()
        try:
            timeout_s = self._timeout_s if timeout_s is None else timeout_s
            return child.ask(json.dumps(question).encode() + b"\n", timeout_s, retry_if_killed=self._retry_if_killed)
        finally:
            self._idle.put(child)

    def terminate(self, wait_s: float = 0.0) -> None:
        """Send SIGTERM to every process that runs, of which the module says what it does, and wait so long for ends."""
        children, until = list(self._children), _CLOCK.monotonic() + wait_s
        for child in children:
            child.terminate()
        for child in children:
            child.wait(until)

    def _taken(self) -> _Child:
        try:
            return self._idle.get(block=self._max_processes is not None)
        except queue.Empty:
            return self._new()

    def _new(self) -> _Child:
        child = _Child(self._module, inherit_stderr=self._inherit_stderr, environment=self._environment)
        self._children.append(child)
        atexit.register(child.stop)
        return child


class _Child:
    """One process at a time, replaced when it ended."""

    def __init__(self, module: str, *, inherit_stderr: bool, environment: Mapping[str, str] | None) -> None:
        self._module = module
        self._inherit_stderr = inherit_stderr
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes, timeout_s: float | None, *, retry_if_killed: bool) -> dict[str, Any]:
        until = None if timeout_s is None else _CLOCK.monotonic() + timeout_s
        for attempt in range(_ATTEMPTS):
            line = _answer(self._running(), question, until)
            if line:
                return dict(json.loads(line))
            if line is None:
                self.stop()
                raise ProcessSilentError(f"the process did not answer in {timeout_s} s")
            ended = ProcessEndedError(self._wait())
            if ended.crashed or attempt + 1 == _ATTEMPTS or not (retry_if_killed or ended.returncode == 0):
                raise ended
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def terminate(self) -> None:
        """Send SIGTERM to the process, if there is one."""
        process = self._process
        if process is not None:
            process.terminate()

    def wait(self, until: float) -> None:
        """Wait for the end of the process, if there is one, no longer than to a monotonic time."""
        process = self._process
        if process is not None and (left_s := until - _CLOCK.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                process.wait(left_s)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._wait()
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._inherit_stderr else subprocess.DEVNULL,
                env=self._environment,
                # A terminal interrupts its whole foreground, and this process decides what that means for the work.
                process_group=0,
            )
        return self._process

    def _wait(self) -> int:
        assert self._process is not None  # noqa: S101 - it was asked
        process, self._process = self._process, None
        process.communicate()  # What was not read any more is no error.
        return process.returncode


def _answer(process: subprocess.Popen[bytes], question: bytes, until: float | None) -> bytes | None:
    """Return a line; nothing if the process ends before its end, None if neither happens in time."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while not said.endswith(b"\n"):
            left_s = None if until is None else until - _CLOCK.monotonic()
            ready = selector.select(left_s) if left_s is None or left_s > 0 else []
            if not ready:
                return None
            for key, _ in ready:
                if key.fileobj is process.stdout:
                    piece = os.read(key.fd, _PIECE_BYTES)
                    if not piece:
                        return b""
                    said += piece
                elif question:
                    question = _written(key.fd, question)
                else:
                    selector.unregister(key.fileobj)
    return said


def _written(pipe: int, data: bytes) -> bytes:
    """Write to a pipe that has room, no more than is sure not to wait; return the rest, nothing if nobody reads."""
    try:
        return data[os.write(pipe, data[: select.PIPE_BUF]) :]
    except BrokenPipeError:
        return b""


def name_of(returncode: int) -> str:
    """Return the name of the signal that ended a process, or its code."""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"code {returncode}"
