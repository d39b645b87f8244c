"""Remembering what follows from Arrow types, also from those that have no hash."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def type_cache(size: int) -> Callable[[Callable[_Asked, _Answer]], Callable[_Asked, _Answer]]:
    """Remember ``size`` answers, as ``lru_cache`` does, of a function of types or schemas.

    An extension type that Python defines, as Lance's ``BFloat16Type``, has no hash; its answers are made each time.
    """

    def remembering(function: Callable[_Asked, _Answer]) -> Callable[_Asked, _Answer]:
        remembered = lru_cache(size)(function)

        @wraps(function)
        def answer(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Answer:
            try:
                return remembered(*args, **kwargs)  # type: ignore[arg-type]
            except TypeError:
                if _has_hash((args, *kwargs.values())):
                    raise
            return function(*args, **kwargs)

        return answer

    return remembering


def _has_hash(values: tuple[object, ...]) -> bool:
    try:
        hash(values)
    except TypeError:
        return False
    return True
