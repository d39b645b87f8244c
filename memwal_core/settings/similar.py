"""What a misspelt variable may mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def meant(variable: str, settings: type[BaseModel], prefix: str) -> str:
    """Return the most similar name of a setting as the rest of a sentence; empty if none is similar."""
    found = get_close_matches(variable.upper(), _variables(settings, prefix), n=1)
    return f", perhaps to {found[0]}" if found else ""


def _variables(settings: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in settings.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _variables(inner, f"{prefix}{name.upper()}__")
        else:
            yield prefix + name.upper()


def problem_of(error: ErrorDetails, known: Iterable[str] = ()) -> str:
    """Return what is wrong with a value, in words for people.

    Args:
        error: As pydantic found it.
        known: The names that there are where the value is.
    """
    if error["type"] == "extra_forbidden":
        found = get_close_matches(str(error["loc"][-1]), list(known), n=1)
        return f"there is no such name{f'; perhaps {found[0]} is meant' if found else ''}"
    return error["msg"].removeprefix("Value error, ")
