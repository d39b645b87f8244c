"""Small JSON documents that are written once, and what is wrong with one that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memwal_core.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError
from memwal_core.storage.protocol import ObjectStore


def load(store: ObjectStore, path: str) -> dict[str, Any] | None:
    """Read a document; None if there is none.

    Raises:
        CorruptionError: It is no JSON object.
    """
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CorruptionError(
            "the record of a batch cannot be read",
            remedy="restore the object, or delete it if you know that the batch was not written",
            path=path,
            found=data[:200],
        )
    return found


def save(store: ObjectStore, path: str, document: Mapping[str, object]) -> bool:
    """Write a document unless there is one.

    Returns:
        Whether this call wrote it.
    """
    try:
        store.put_if_absent(path, to_bytes(document))
    except ObjectExistsError:
        return False
    return True


def to_bytes(document: Mapping[str, object]) -> bytes:
    """Return a document as bytes."""
    return json.dumps(document, sort_keys=True).encode()
