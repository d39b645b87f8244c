"""How many arenas the allocator of the C library keeps: memory that is freed in one serves no allocation in another."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache

_M_ARENA_MAX = -8
"""Of glibc's ``malloc.h``."""

_VARIABLES = {"MALLOC_ARENA_MAX": "", "GLIBC_TUNABLES": "glibc.malloc.arena_max"}
"""With which whoever starts the process chooses the number, and what the variable then says."""


def limit_arenas() -> None:
    """Let glibc keep no more arenas than there are processors, unless the environment says how many.

    By default there are eight for each. Lance's threads spread a job's rows over all of them, so that a job of many
    passes holds half as much again as it needs ([0060](../../docs/decisions/0060-one-arena-for-each-processor.md)).
    For processes that do nothing but this package's work: the limit is the whole process's. Before threads begin, for
    arenas that exist stay.
    """
    if not chosen(os.environ):
        _limit()


def chosen(environment: Mapping[str, str]) -> bool:
    """Return whether an environment says how many arenas there may be."""
    return any(name in environment and part in environment[name] for name, part in _VARIABLES.items())


@cache
def _limit() -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # Only glibc has it.
        libc.mallopt(_M_ARENA_MAX, len(os.sched_getaffinity(0)))
