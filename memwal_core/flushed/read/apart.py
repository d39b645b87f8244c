"""Decoding files of a table in a process of its own, because Lance ends the process where one is not as it expects."""

from __future__ import annotations

from memwal_core.native.decoding import decode_elsewhere
from memwal_core.storage.protocol import ObjectStore


def decode_apart(store: ObjectStore, path: str) -> int:
    """Decode every page of a data file elsewhere; costs and errors as for ``decode_elsewhere``.

    Returns:
        How many rows it has.
    """
    return int(decode_elsewhere(store.uri_of(path), store.storage_options)["rows"])


def decode_fragment_apart(store: ObjectStore, uri: str, version: int, fragment_id: int) -> tuple[int, int]:
    """Read every row of a fragment of a table elsewhere; costs and errors as for ``decode_elsewhere``.

    Returns:
        How many rows were read, and how many it should have.
    """
    answer = decode_elsewhere(uri, store.storage_options, version=version, fragment=fragment_id)
    return int(answer["rows"]), int(answer["expected"])


def load_index_apart(store: ObjectStore, uri: str, version: int, name: str, *, everything: bool) -> tuple[int, ...]:
    """Open an index of a table elsewhere, or load all of it; costs and errors as for ``decode_elsewhere``.

    Returns:
        How many vectors each of its partitions has, over all its segments; nothing if it has none.
    """
    answer = decode_elsewhere(uri, store.storage_options, version=version, index=name, everything=everything)
    return tuple(map(int, answer["partitions"]))
