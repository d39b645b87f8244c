"""Decoding files in a process of its own, because Lance ends the process where a file is not as it expects."""

from __future__ import annotations

import atexit
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
from functools import cache
from typing import Any

from memwal_core.errors import CorruptionError, UnavailableError
from memwal_core.storage.protocol import ObjectStore

_CHILD = "memwal_core.flushed.read.decoding_child"
_AT_ONCE = 2
_ATTEMPTS = 2
_OWN_FAULTS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL})
_LONGEST_S = 600
"""For one file: far more than one needs that a merge can take."""


def decode_apart(store: ObjectStore, path: str) -> int:
    """Decode every page of a data file elsewhere; safe for threads.

    The first call costs half a second of processor time. What decodes ends by itself when it is not needed.

    Args:
        store: Has the file.
        path: Of the file.

    Returns:
        How many rows it has.

    Raises:
        CorruptionError: It cannot be decoded, or ends the process that does; ``facts["reason"]`` says which.
        UnavailableError: The store did not answer.
    """
    uri = store.uri_of(path)
    answer = _processes(os.getpid()).ask({"uri": uri, "storage_options": dict(store.storage_options)})
    if "rows" in answer:
        return int(answer["rows"])
    if answer["unavailable"]:
        raise UnavailableError(
            "the store did not answer", remedy="back off and retry", uri=uri, reason=answer["reason"]
        )
    raise CorruptionError("Lance cannot decode a file", remedy="run `memwal repair`", uri=uri, reason=answer["reason"])


@cache
def _processes(_owner: int) -> _Processes:
    """Return those of one process: after a fork, the pipes belong to the parent."""
    return _Processes()


class _Processes:
    """A few processes, started when they are needed."""

    def __init__(self) -> None:
        self._idle: queue.LifoQueue[_DecodingProcess] = queue.LifoQueue()
        for _ in range(_AT_ONCE):
            process = _DecodingProcess()
            self._idle.put(process)
            atexit.register(process.stop)

    def ask(self, question: dict[str, object]) -> dict[str, Any]:
        process = self._idle.get()
        try:
            return process.ask(question)
        finally:
            self._idle.put(process)


class _DecodingProcess:
    """One process at a time, replaced when it died of a file, or ended because nobody asked it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, object]) -> dict[str, Any]:
        """Return the answer, or that there can be none.

        A process may also have been ended by others, or by itself when nobody asked: then a second one must die, too.
        """
        ended = 0
        for _ in range(_ATTEMPTS):
            line = _answer(self._running(), json.dumps(question).encode() + b"\n")
            if line:
                return dict(json.loads(line))
            if line is None:
                self.stop()
                return {"unavailable": True, "reason": f"decoding did not end in {_LONGEST_S} s"}
            ended = self._wait()
            if -ended in _OWN_FAULTS:
                break
        return {"unavailable": False, "reason": f"it ends the process that decodes it, with {_name_of(ended)}"}

    def stop(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._wait()
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _wait(self) -> int:
        assert self._process is not None  # noqa: S101 - it was asked
        process, self._process = self._process, None
        process.communicate()  # What was not read any more is no error.
        return process.returncode


def _answer(process: subprocess.Popen[bytes], question: bytes) -> bytes | None:
    """Return a line; nothing if the process ends instead, None if neither happens in time."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
    try:
        process.stdin.write(question)
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(_LONGEST_S) else None


def _name_of(returned: int) -> str:
    try:
        return signal.Signals(-returned).name
    except ValueError:
        return f"code {returned}"
