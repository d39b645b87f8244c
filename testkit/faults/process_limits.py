"""What this process may use of the machine, bounded for a while."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_STREAMS = 3
"""Numbers that no other file gets."""


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let this process write no larger file, as on a full disk."""
    with _limited(resource.RLIMIT_FSIZE, size_bytes):
        yield


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file beyond those that are open, whatever other threads close meanwhile."""
    with _limited(resource.RLIMIT_NOFILE, _STANDARD_STREAMS):
        yield


@contextmanager
def _limited(kind: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
