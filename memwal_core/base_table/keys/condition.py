"""Keys as SQL conditions, so that Lance can use an index on them."""

from __future__ import annotations

from collections.abc import Iterable

from memwal_core.errors import InternalError

_SMALLEST = -(2**63)


def sql_literal(value: object) -> str:
    """Return a key's value as SQL."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            # Lance reads the digits of a negative number first, and those of the smallest one are no integer.
            return str(value) if value != _SMALLEST else f"({value + 1} - 1)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"X'{value.hex()}'"
    raise InternalError("a primary key has an unsupported type", remedy="report this", type=type(value).__name__)


def one_of(column: str, values: Iterable[object]) -> str:
    """Return the condition that a column has one of some values, at least one."""
    return f"`{column}` IN ({', '.join(map(sql_literal, values))})"


def within(column: str, spans: Iterable[tuple[object, object]]) -> str:
    """Return the condition that a column lies within one of some spans, both ends included; at least one span."""
    return " OR ".join(
        f"(`{column}` >= {sql_literal(low)} AND `{column}` <= {sql_literal(high)})" for low, high in spans
    )
