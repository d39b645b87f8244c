"""Memory that a thread frees is there for the other threads, instead of for those of its own arena."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from memwal_core import cli
from memwal_core.native.arenas import chosen
from memwal_core.spark import application, fleet, slots

ARENAS_OF_MANY_THREADS = """
import ctypes, threading
{before}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(40)

def allocate():
    together.wait()
    assert libc.malloc(1000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(40)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc.fopen.restype = ctypes.c_void_p
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fclose(ctypes.c_void_p(out))
"""
LIMITED = "from memwal_core.native.arenas import limit_arenas; limit_arenas()"


def _arenas(before: str = "", **environment: str) -> int:
    others = {name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")}
    code = ARENAS_OF_MANY_THREADS.format(before=before)
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**others, **environment}, check=True, capture_output=True, text=True
    )
    return len(re.findall("<heap nr=", ran.stdout))


def test_there_are_no_more_arenas_than_processors() -> None:
    processors = len(os.sched_getaffinity(0))

    assert _arenas() > processors
    assert 1 <= _arenas(LIMITED) <= processors


def test_whoever_starts_the_process_decides_first() -> None:
    processors = len(os.sched_getaffinity(0))

    assert _arenas(LIMITED, MALLOC_ARENA_MAX=str(processors + 3)) > processors
    assert _arenas(LIMITED, GLIBC_TUNABLES=f"glibc.malloc.arena_max={processors + 3}") > processors


@pytest.mark.parametrize(
    ("environment", "is_chosen"),
    [
        ({}, False),
        ({"MALLOC_ARENA_MAX": "4"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=3:glibc.malloc.arena_max=4"}, True),
    ],
)
def test_environment_that_chooses_is_told_from_others(environment: dict[str, str], is_chosen: bool) -> None:
    assert chosen(environment) is is_chosen


class LimitedError(Exception):
    """Raised in place of setting the limit."""


def _in_a_task() -> None:
    with slots.settled():
        pass


@pytest.mark.parametrize(
    ("module", "process"),
    [
        (cli, cli.main),
        (application, lambda: application.main("merge", ["{}"])),
        (fleet, lambda: fleet.main([])),
        (slots, _in_a_task),
    ],
    ids=["command", "Spark application", "fleet", "task"],
)
def test_processes_of_this_package_set_the_limit(
    module: ModuleType, process: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit_arenas() -> None:
        raise LimitedError

    monkeypatch.setattr(module, "limit_arenas", limit_arenas)
    monkeypatch.setattr(slots.TaskContext, "get", lambda: "a task")

    with pytest.raises(LimitedError):
        process()
