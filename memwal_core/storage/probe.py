"""Tests on a scratch object whether a store honours conditional writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from memwal_core.errors import ConflictError, InvalidRequestError, ObjectNotFoundError
from memwal_core.rng import Rng, system_rng
from memwal_core.storage.protocol import ObjectStore

_FIRST = b"memwal probe, first write"
_SECOND = b"memwal probe, second write"
_REMEDY = "use a store with conditional writes: without them two writers silently overwrite each other's data"


def probe_conditional_put(store: ObjectStore, directory: str, rng: Rng | None = None) -> None:
    """Prove that a second put-if-absent is refused and changes nothing.

    ``directory`` holds the scratch object, which is removed again. ``InvalidRequestError`` means that the
    store must not be used; ``UnavailableError`` proves nothing.
    """
    with _scratch(store, directory, rng) as path:
        store.put_if_absent(path, _FIRST)
        _expect_refusal(lambda: store.put_if_absent(path, _SECOND), store, path, "If-None-Match")
        if store.get(path) != _FIRST:
            _refuse(store, path, "If-None-Match")


@contextmanager
def _scratch(store: ObjectStore, directory: str, rng: Rng | None) -> Iterator[str]:
    name = f"probe-{(rng if rng is not None else system_rng()).getrandbits(64):016x}"
    path = f"{directory}/{name}" if directory else name
    try:
        yield path
    except ObjectNotFoundError as error:
        _refuse(store, path, "read after write", error)
    finally:
        store.delete(path)


def _expect_refusal(write: Callable[[], None], store: ObjectStore, path: str, condition: str) -> None:
    try:
        write()
    except ConflictError:
        return
    _refuse(store, path, condition)


def _refuse(store: ObjectStore, path: str, condition: str, cause: Exception | None = None) -> NoReturn:
    raise InvalidRequestError(
        "the store does not honour conditional writes", remedy=_REMEDY, store=store.uri, path=path, condition=condition
    ) from cause
