"""What a misspelt variable may mean."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from pydantic import BaseModel


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
