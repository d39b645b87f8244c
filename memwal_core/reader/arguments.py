"""What callers ask for, looked at before Lance or Arrow fail on it in words of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.errors import InvalidRequestError

_LARGEST = (1 << 63) - 1


def require_count(name: str, value: object, least: int = 0) -> None:
    """Refuse with ``InvalidRequestError`` what is no whole number from ``least`` on, in 64 bits; a bool is none."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or not least <= value <= _LARGEST:  # type: ignore[operator]
        raise InvalidRequestError(
            f"`{name}` is no number to count with",
            remedy=f"pass a whole number of at least {least}",
            **{name: value, "type": type(value).__name__},
        )


def require_kind(name: str, value: object, kind: type, remedy: str = "") -> None:
    """Refuse with ``InvalidRequestError`` what is no object of a class, such as its text or the class itself."""
    if not isinstance(value, kind):
        raise InvalidRequestError(
            f"`{name}` is no {kind.__name__}",
            remedy=remedy or f"pass an object of the class {kind.__module__}.{kind.__name__}",
            found=f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__,
        )


def require_names(columns: object) -> None:
    """Refuse with ``InvalidRequestError`` what is no list of names, such as one name by itself."""
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    if not is_list or not all(isinstance(each, str) for each in columns):  # type: ignore[attr-defined]
        raise InvalidRequestError("columns are given by a list of names", remedy="pass a list of texts", found=columns)


def require_columns(columns: Sequence[str] | None, schema: pa.Schema, *virtual: str) -> tuple[str, ...]:
    """Return the columns to read, all of the table if None.

    Refuse with ``InvalidRequestError`` an empty list, names that repeat, and those of no column of the table and no
    virtual one.
    """
    if columns is None:
        return tuple(schema.names)
    require_names(columns)
    known, repeated = {*schema.names, *virtual}, [name for name, times in Counter(columns).items() if times > 1]
    unknown = [name for name in columns if name not in known]
    if unknown or repeated or not columns:
        raise InvalidRequestError(
            "these columns cannot be returned",
            remedy="name top-level columns of the table, at least one, and each once",
            unknown=unknown,
            repeated=repeated,
            columns=sorted(known),
        )
    return tuple(columns)


def require_free(columns: Sequence[str], result: str) -> None:
    """Refuse with ``InvalidRequestError`` a table that has a column under the name of a search's own result."""
    if result in columns:
        raise InvalidRequestError(
            "a column of the table has the name under which Lance returns the result of this search",
            remedy="rename the column",
            column=result,
        )


def as_names(names: str | Sequence[str]) -> list[str]:
    """Return one name or several as a list; ``InvalidRequestError`` if they are none."""
    found = [names] if isinstance(names, str) else names
    require_names(found)
    return list(found)


def require_words(query: object) -> None:
    """Refuse with ``InvalidRequestError`` what is no text, or none that Unicode allows."""
    try:
        is_text = isinstance(query, str) and bool(query.encode() or not query)
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise InvalidRequestError(
            "the words to search for are no text", remedy="pass one text in valid Unicode", query=repr(query)[:200]
        )


def query_vector(vector: object) -> npt.NDArray[Any]:
    """Return a query vector as an array; ``InvalidRequestError`` if it is no list of finite numbers."""
    try:
        found = np.asarray(vector)
        if found.dtype.kind == "O":
            found = found.astype(np.float64)
        is_usable = found.ndim == 1 and found.dtype.kind in "fiu" and bool(np.isfinite(found).all())
    except (TypeError, ValueError):
        is_usable = False
    if not is_usable:
        raise InvalidRequestError(
            "the query is no vector of finite numbers",
            remedy="pass as many numbers as the lists of the column have, none of them NaN or NULL",
            vector=str(vector)[:200],
            type=type(vector).__name__,
        )
    return found
