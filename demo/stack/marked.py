"""Processes that carry the mark of a stack in their environment, wherever they went since they were started.

A server's children may lead sessions of their own, as Spark's drivers do, and outlive whoever started them. Their
environment stays theirs, so it tells to which stack they belong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import psutil

from memwal_core.clock import Clock

MARK = "MAINTENANCE_STACK"
"""Variable that every process of a stack inherits: the directory of the stack."""

_ENDS_WITHIN_S = 10.0
_POLL_S = 0.05
_ROUNDS = 5
"""How often it is looked again: what is ended may have started something just before."""


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the variables with the mark, for a process whose children shall be found again."""
    # Programs that give themselves a title would write it over the environment that others can see.
    return {**environment, MARK: mark, "SPT_NOENV": "1"}


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return the living processes of this user that carry a mark, but not this one and its parents."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in own and _carries(process, mark)]


def descendants(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the children of processes and all of theirs; of those that have ended, none."""
    found: list[psutil.Process] = []
    for pid in pids:
        try:
            found += psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            continue
    return found


def end_processes(mark: str, clock: Clock, others: Iterable[psutil.Process] = ()) -> int:
    """End every process that carries a mark: ask it, then kill it.

    Args:
        mark: Of the stack.
        clock: Measures and waits.
        others: Processes to end as well if they are still the same ones, for example known descendants.

    Returns:
        How many there were. None of them lives any more unless the system refuses to kill it.
    """
    ended, more = 0, [process for process in others if _lives(process)]
    for _ in range(_ROUNDS):
        found = list({*marked_processes(mark), *more})
        if not found:
            break
        for process in found:
            _signal(process, kill=False)
        for process in _await_end(found, clock):
            _signal(process, kill=True)
        _await_end(found, clock)
        ended, more = ended + len(found), []
    return ended


def _await_end(processes: Iterable[psutil.Process], clock: Clock) -> list[psutil.Process]:
    """Return the processes that still live after a while."""
    until = clock.monotonic() + _ENDS_WITHIN_S
    while (alive := [process for process in processes if _lives(process)]) and clock.monotonic() < until:
        clock.sleep(_POLL_S)
    return alive


def _lives(process: psutil.Process) -> bool:
    # One that ended and that its parent takes no note of never goes away; it does nothing any more.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return _lives(process) and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False  # It has ended, or is somebody else's.


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        process.kill() if kill else process.terminate()
    except psutil.Error:
        return  # It has ended.
