"""A store that counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from memwal_core.storage import ObjectStore

_REQUESTS = ("get", "get_range", "head", "list_objects", "list_directories")


class _Counted:
    def __init__(self, inner: ObjectStore, requests: Counter[str]) -> None:
        self._inner = inner
        self._requests = requests

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._inner, name)
        if name not in _REQUESTS:
            return found

        def counted(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            self._requests[name] += 1
            result = found(*args, **options)
            if isinstance(result, bytes):
                self._requests["bytes"] += len(result)
            return result

        return counted


def counted_store(inner: ObjectStore, requests: Counter[str]) -> ObjectStore:
    """Return a store that adds what readers ask of it to ``requests``: calls by their name, and ``bytes`` read."""
    return cast("ObjectStore", _Counted(inner, requests))
