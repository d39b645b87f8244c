"""What callers ask for, looked at before Lance or Arrow fail on it in words of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import CREATED_AT, ROW_ADDRESS, ROW_ID, ROW_OFFSET, UPDATED_AT

_LARGEST = (1 << 63) - 1
_NO_CODE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_PARAMETER = re.compile(r"(?<![\w$])(?:\?\d*|\$\w+(?![\w$]))|(?<![\w:\])]):[A-Za-z_]\w*")


_LANCES_OWN = f"(?:{'|'.join((ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT))})"
_OWN_COLUMN = re.compile(rf"(?<![\w.`]){_LANCES_OWN}(?![\w`])|(?<!\.)`{_LANCES_OWN}`", re.IGNORECASE)


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


def require_filter(filter_sql: object) -> None:
    """Refuse with ``InvalidRequestError`` what is no text, parameters, at which Lance panics, and Lance's own columns.

    Base table and regions number their rows each for itself, so a condition on a row's number means nothing.
    """
    if not isinstance(filter_sql, str):
        raise InvalidRequestError("a filter is text", remedy="pass a condition in Lance's SQL", filter=filter_sql)
    parameter = _PARAMETER.search(_NO_CODE.sub("''", filter_sql))
    if parameter is not None:
        raise InvalidRequestError(
            "a filter has no parameters",
            remedy="write the value itself; text stands in single quotes, and a single quote in it twice",
            filter=filter_sql,
            parameter=parameter[0],
        )
    own = _OWN_COLUMN.search(_NO_CODE.sub(lambda found: found[0] if found[0].startswith("`") else "''", filter_sql))
    if own is not None:
        raise InvalidRequestError(
            "a filter cannot use Lance's own columns: each source of rows has its own ids, addresses and versions",
            remedy="write the condition with columns of the table",
            filter=filter_sql,
            column=own[0],
        )


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
