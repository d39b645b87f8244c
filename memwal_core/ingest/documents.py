"""Small JSON documents that are written once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memwal_core.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError
from memwal_core.format.document import parse_document
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore


def load(store: ObjectStore, path: str) -> dict[str, Any] | None:
    """Read a document; None if it does not exist.

    Raises:
        CorruptionError: It is not a JSON object.
    """
    try:
        data = store.get(path, MAX_NOTE_BYTES)
    except ObjectNotFoundError:
        return None
    try:
        found = parse_document(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CorruptionError(
            "the record of a batch cannot be read",
            remedy="restore the object from a backup, or delete it if the batch was certainly not written",
            path=path,
            found=data[:200],
        )
    return found


def save(store: ObjectStore, path: str, document: Mapping[str, object]) -> bool:
    """Write a document unless it exists; return whether this call wrote it."""
    try:
        store.put_if_absent(path, to_bytes(document))
    except ObjectExistsError:
        return False
    return True


def to_bytes(document: Mapping[str, object]) -> bytes:
    """Return a document as bytes."""
    return json.dumps(document, sort_keys=True).encode()
