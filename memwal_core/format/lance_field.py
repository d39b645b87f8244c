"""A field of a Lance schema, as pylance shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class LanceField(Protocol):
    """The part of pylance's field that is used here."""

    def name(self) -> str:
        """Return the column name."""
        ...

    def id(self) -> int:
        """Return the field id."""
        ...

    def children(self) -> Sequence[LanceField]:
        """Return the nested fields in order."""
        ...
