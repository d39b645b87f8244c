"""Tests on scratch objects whether a store honours conditional writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Barrier
from typing import NoReturn

from memwal_core.errors import ConflictError, InvalidRequestError, ObjectNotFoundError
from memwal_core.rng import Rng, system_rng
from memwal_core.storage.concurrent import map_concurrently
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


def race_conditional_puts(stores: Sequence[ObjectStore], directory: str, rounds: int, rng: Rng | None = None) -> None:
    """Prove that of all clients that put the same new object at once, one wins, and all then read what it wrote.

    Args:
        stores: The same place, through several clients and maybe several endpoints.
        directory: Holds the scratch objects, which are removed again.
        rounds: How often they race.
        rng: Names the scratch objects.

    Raises:
        InvalidRequestError: The store must not be used.
        UnavailableError: It did not answer, which proves nothing.
    """
    start = Barrier(len(stores))
    contents = [f"memwal probe, client {number}".encode() for number in range(len(stores))]

    for _ in range(rounds):
        with _scratch(stores[0], directory, rng) as path:

            def put(number: int, path: str = path) -> bool:
                start.wait()
                try:
                    stores[number].put_if_absent(path, contents[number])
                except ConflictError:
                    return False
                return True

            won = map_concurrently(put, range(len(stores)), len(stores))
            read = [store.get(path) for store in stores]
            expected = [contents[number] for number, is_winner in enumerate(won) if is_winner]
            if len(expected) != 1 or set(read) != set(expected):
                _refuse(stores[0], path, f"If-None-Match, raced: {len(expected)} of {len(stores)} clients won")


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
