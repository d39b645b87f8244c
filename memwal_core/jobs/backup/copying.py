"""Bringing files from one store to another, many at once, without holding a large one in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from memwal_core.errors import ObjectNotFoundError
from memwal_core.jobs.backup.plan import CopiedFile
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore

_SMALL_BYTES = 8 << 20
_PART_BYTES = 8 << 20
_LARGE_AT_ONCE = 2


class GoneError(Exception):
    """A file of the original is gone, or another one than before, so that the moment cannot be completed."""


class Copier:
    """Copies files of one table to another store.

    Args:
        concurrency: Files at once; of large ones, two.
        before: Called before each group of files; may raise to stop.
        progressed: Called whenever a file, or a part of a large one, is copied; may raise to stop.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        concurrency: int,
        *,
        before: Callable[[int], None],
        progressed: Callable[[], None],
    ) -> None:
        """Keep the parts."""
        self._source = source
        self._target = target
        self._concurrency = concurrency
        self._before = before
        self._progressed = progressed
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)

    def copy(self, files: Sequence[CopiedFile]) -> None:
        """Copy files, durably.

        Raises:
            GoneError: One of them is gone, or has another length than before.
            ObjectExistsError: The target has other bytes under one of the names.
            UnavailableError: Storage failed; what was copied stands.
        """
        group = self._concurrency * 4
        for start in range(0, len(files), group):
            self._before(start)
            map_concurrently(self._copy, files[start : start + group], self._concurrency)

    def _copy(self, file: CopiedFile) -> None:
        try:
            if file.size_bytes <= _SMALL_BYTES:
                self._copy_small(file)
            else:
                with self._large:
                    self._copy_large(file)
        except ObjectNotFoundError as error:
            raise GoneError(file.source) from error
        self._progressed()

    def _copy_small(self, file: CopiedFile) -> None:
        data = self._source.get(file.source)
        _require_length(file, len(data))
        self._target.put_if_absent(file.target, data)

    def _copy_large(self, file: CopiedFile) -> None:
        self._target.put_large(file.target, self._pieces(file), file.size_bytes)

    def _pieces(self, file: CopiedFile) -> Iterator[bytes]:
        """Read a file piece by piece; with the last one a byte more is asked for, which a file that grew has."""
        for start in range(0, file.size_bytes, _PART_BYTES):
            rest = file.size_bytes - start
            asked = _PART_BYTES if rest > _PART_BYTES else rest + 1
            piece = self._source.get_range(file.source, start, asked)
            if len(piece) != min(_PART_BYTES, rest):
                found = self._source.head(file.source)
                _require_length(file, found.size_bytes if found is not None else 0)
                raise GoneError(f"{file.source} changes while it is read")
            self._progressed()
            yield piece


def _require_length(file: CopiedFile, found: int) -> None:
    if found != file.size_bytes:
        raise GoneError(f"{file.source} has {found} bytes instead of {file.size_bytes}")
