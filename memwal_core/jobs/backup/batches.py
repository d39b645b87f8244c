"""The records of batches for a copy, in which a batch that was written must not be written again.

They are read before regions are: rows precede their record, so the copy has what its records tell of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memwal_core.errors import ObjectNotFoundError
from memwal_core.format.paths import BATCHES_DIRECTORY, UNNAMED_STREAM, batch_stream_directory
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore

_UNNAMED = f"{batch_stream_directory(UNNAMED_STREAM)}/"
_DONE = "/done.json"
_FLOOR = "/floor/"
_CLAIMS = "/claims/"


def batch_records(store: ObjectStore, concurrency: int) -> dict[str, bytes]:
    """Return the records of named batches by path.

    Read in this order: shares, batches that are done, floors. A share goes only once its batch is recorded as done, and
    that record only once a floor covers it, so that one of them is always found.
    """
    found: dict[str, bytes] = {}
    for is_next in (_is_of_a_batch_under_way, _is_done, _is_floor):
        found |= read_all(store, _named(store, is_next), concurrency)
    return found


def read_all(store: ObjectStore, paths: Iterable[str], concurrency: int) -> dict[str, bytes]:
    """Return the contents of those objects that are still there."""
    listed = list(paths)
    read = map_concurrently(lambda path: _content(store, path), listed, concurrency)
    return {path: data for path, data in zip(listed, read, strict=True) if data is not None}


def _named(store: ObjectStore, is_wanted: Callable[[str], bool]) -> list[str]:
    """List records; a claim is of use to the writer that made it only, and an unnamed batch is never repeated."""
    listed = (each.path for each in store.list_objects(BATCHES_DIRECTORY))
    return [path for path in listed if is_wanted(path) and _CLAIMS not in path and not path.startswith(_UNNAMED)]


def _is_of_a_batch_under_way(path: str) -> bool:
    return not (_is_done(path) or _is_floor(path))


def _is_done(path: str) -> bool:
    return path.endswith(_DONE)


def _is_floor(path: str) -> bool:
    return _FLOOR in path


def _content(store: ObjectStore, path: str) -> bytes | None:
    try:
        return store.get(path)
    except ObjectNotFoundError:
        return None
