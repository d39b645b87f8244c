"""A field of a Lance schema, as pylance shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def inner_ids(columns: Iterable[LanceField]) -> dict[str, tuple[int, ...]]:
    """Return for each column that has fields inside their ids, depth first."""
    found = {column.name(): tuple(all_ids(column.children())) for column in columns}
    return {name: ids for name, ids in found.items() if ids}


def all_ids(fields: Iterable[LanceField]) -> Iterator[int]:
    """Yield the ids of fields and of all fields inside, depth first."""
    for field in fields:
        yield field.id()
        yield from all_ids(field.children())


def field_path(columns: Iterable[LanceField], number: int) -> tuple[str, ...]:
    """Return the names that lead to the field with an id, the column first; nothing if there is no such field."""
    for each in columns:
        if each.id() == number:
            return (each.name(),)
        below = field_path(each.children(), number)
        if below:
            return (each.name(), *below)
    return ()
