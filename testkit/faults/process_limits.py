"""What this process may use of the machine, bounded for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let this process write no larger file, as on a full disk."""
    with _limited(resource.RLIMIT_FSIZE, size_bytes):
        yield


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file beyond those that are open."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    with _limited(resource.RLIMIT_NOFILE, free):
        yield


@contextmanager
def _limited(kind: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
