"""What a filter implies for single columns.

A filter is SQL text that Lance evaluates on rows. Here DataFusion only parses it, into boxes: alternatives that each
bound some columns. Whatever cannot be parsed or understood bounds nothing, which is always safe.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from memwal_core.base_table.reading.filter_text import conditions_in, require_filter

_MAX_BOXES = 256
_MAX_CONDITIONS = 250
"""More are not looked at: DataFusion, too, overflows its stack, at some thousand of them."""
_STRING_QUOTE = '"'
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Bound:
    """Which values a column may have.

    Attributes:
        values: The only possible values, None standing for NULL; None if they cannot be listed.
        low: Inclusive lower bound, which excludes NULL; None = no bound.
        high: Inclusive upper bound, which excludes NULL; None = no bound.
    """

    values: frozenset[object] | None = None
    low: Any = None
    high: Any = None

    def both(self, other: Bound) -> Bound:
        """Return the bound that satisfies both."""
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        low, high = max(lows, default=None), min(highs, default=None)
        listed = [each for each in (self.values, other.values) if each is not None]
        values = frozenset.intersection(*listed) if listed else None
        if values is not None:
            values = frozenset(each for each in values if _lies_within(each, low, high))
        return Bound(values, low, high)

    @property
    def is_empty(self) -> bool:
        """Whether no value is possible."""
        crossed = self.low is not None and self.high is not None and self.low > self.high
        return crossed or (self.values is not None and not self.values)


Box = Mapping[str, Bound]
"""Column -> its bound; other columns may have any value."""

ANYTHING: tuple[Box, ...] = (MappingProxyType({}),)
"""The boxes of a filter that bounds nothing."""


def boxes_of(filter_sql: str | None, schema: pa.Schema) -> tuple[Box, ...]:
    """Return boxes that together contain at least every row of a filter; no box if no row can pass.

    Raises:
        InvalidRequestError: The filter is no text, or has parameters.
    """
    if filter_sql is None:
        return ANYTHING
    require_filter(filter_sql)
    # Lance reads text in double quotes as a string, DataFusion as the name of a column.
    is_parsed = _STRING_QUOTE not in filter_sql and conditions_in(filter_sql) <= _MAX_CONDITIONS
    predicate = _parsed(filter_sql, schema) if is_parsed else None
    return ANYTHING if predicate is None else tuple(_boxes(predicate, schema))


def _parsed(filter_sql: str, schema: pa.Schema) -> Any | None:  # noqa: ANN401 - datafusion ships no types
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415 - most reads have no filter

    context = SessionContext(SessionConfig({"datafusion.sql_parser.enable_ident_normalization": "false"}))
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=_nullable(schema))
    # Longer than any column: `name.field` is a field of a struct to Lance, and to DataFusion a column of such a table.
    table = "_" * max(len(name) + 1 for name in ("", *schema.names))
    try:
        context.register_record_batches(table, [[empty]])
        plan = context.sql(f"SELECT * FROM {table} WHERE {filter_sql}").logical_plan()  # noqa: S608 - never run
    except Exception:  # noqa: BLE001 - DataFusion raises plain Exception; Lance reports a bad filter
        return None
    inputs = plan.inputs()
    node = inputs[0].to_variant() if inputs else None
    # Anything but one filter over the table means that the text was more than a condition.
    is_condition = type(node).__name__ == "Filter" and type(inputs[0].inputs()[0].to_variant()).__name__ == "TableScan"
    return node.predicate() if node is not None and is_condition else None


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _variant(expression: Any) -> Any:  # noqa: ANN401
    """Return an expression in the form of its kind; None for kinds that DataFusion does not show, such as functions."""
    try:
        return expression.to_variant()
    except Exception:  # noqa: BLE001 - as above
        return None


def _boxes(expression: Any, schema: pa.Schema) -> Sequence[Box]:  # noqa: ANN401
    node = _variant(expression)
    kind = type(node).__name__
    if kind == "BinaryExpr" and node.op() in {"AND", "OR"}:
        left, right = _boxes(node.left(), schema), _boxes(node.right(), schema)
        return _either(left, right) if node.op() == "OR" else _together(left, right)
    bound = _bound(node, kind, schema)
    if bound is None:
        return ANYTHING
    name, allowed = bound
    return () if allowed.is_empty else (MappingProxyType({name: allowed}),)


def _either(left: Sequence[Box], right: Sequence[Box]) -> Sequence[Box]:
    together = (*left, *right)
    return ANYTHING if len(together) > _MAX_BOXES or any(not box for box in together) else together


def _together(left: Sequence[Box], right: Sequence[Box]) -> Sequence[Box]:
    if len(left) * len(right) > _MAX_BOXES:
        return left if len(left) <= len(right) else right  # Either side alone contains every row, too.
    boxes = []
    for one, other in itertools.product(left, right):
        merged = dict(one)
        for name, bound in other.items():
            merged[name] = merged[name].both(bound) if name in merged else bound
        if not any(bound.is_empty for bound in merged.values()):
            boxes.append(MappingProxyType(merged))
    return boxes


def _bound(node: Any, kind: str, schema: pa.Schema) -> tuple[str, Bound] | None:  # noqa: ANN401
    if kind == "BinaryExpr":
        return _comparison(node.left(), node.op(), node.right(), schema)
    if kind == "InList" and not node.negated():
        return _listed(node.expr(), node.list(), schema)
    if kind == "Between" and not node.negated():
        return _between(node.expr(), node.low(), node.high(), schema)
    if kind == "IsNull":
        name = _column(node.expr(), schema)
        return None if name is None else (name, Bound(values=frozenset({None})))
    return None


def _comparison(left: Any, operator: str, right: Any, schema: pa.Schema) -> tuple[str, Bound] | None:  # noqa: ANN401
    if operator not in _FLIPPED:
        return None
    name = _column(left, schema)
    if name is None:
        left, operator, right = right, _FLIPPED[operator], left
        name = _column(left, schema)
    value = None if name is None else _literal(right, schema.field(name).type)
    if name is None or value is None:
        return None
    if operator == "=":
        return name, Bound(values=frozenset({value}))
    return name, Bound(low=value) if operator in {">", ">="} else Bound(high=value)


def _listed(expression: Any, items: Sequence[Any], schema: pa.Schema) -> tuple[str, Bound] | None:  # noqa: ANN401
    name = _column(expression, schema)
    if name is None:
        return None
    values = [_literal(item, schema.field(name).type) for item in items]
    return None if any(value is None for value in values) else (name, Bound(values=frozenset(values)))


def _between(expression: Any, low: Any, high: Any, schema: pa.Schema) -> tuple[str, Bound] | None:  # noqa: ANN401
    name = _column(expression, schema)
    if name is None:
        return None
    least, most = (_literal(each, schema.field(name).type) for each in (low, high))
    return None if least is None or most is None else (name, Bound(low=least, high=most))


def _column(expression: Any, schema: pa.Schema) -> str | None:  # noqa: ANN401
    node = _variant(expression)
    if type(node).__name__ != "Column" or node.name() not in schema.names:
        return None
    return str(node.name()) if _has_plain_equality(schema.field(node.name()).type) else None


def _has_plain_equality(data_type: pa.DataType) -> bool:
    """Floats have two zeros and NaN; decimals and nested types have several forms of one value."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or _is_text(data_type)
        or pa.types.is_date32(data_type)
        or (pa.types.is_timestamp(data_type) and data_type.tz is None)
    )


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _literal(expression: Any, data_type: pa.DataType) -> Any | None:  # noqa: ANN401
    """Return a constant as a value of the column's type; None if that is not certain."""
    node = _variant(expression)
    if type(node).__name__ == "Cast":
        return _cast_literal(expression, node, data_type)
    if type(node).__name__ != "Literal":
        return None
    value = _constant(expression)
    if pa.types.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(data_type):
        return _integer(value, data_type)
    return value if _is_text(data_type) and isinstance(value, str) else None


def _constant(expression: Any) -> object:  # noqa: ANN401
    value = expression.python_value()
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _integer(value: object, data_type: pa.DataType) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    signed = pa.types.is_signed_integer(data_type)
    low = -(1 << (data_type.bit_width - 1)) if signed else 0
    high = (1 << (data_type.bit_width - signed)) - 1
    return value if low <= value <= high else None


def _cast_literal(expression: Any, node: Any, data_type: pa.DataType) -> Any | None:  # noqa: ANN401
    """Return the value of ``date '...'`` or ``timestamp '...'``."""
    inner = node.expr()
    text = _constant(inner) if type(_variant(inner)).__name__ == "Literal" else None
    if not isinstance(text, str):
        return None
    target = expression.canonical_name().rpartition(" AS ")[2]
    is_date = pa.types.is_date32(data_type) and target == "Date32)"
    is_moment = pa.types.is_timestamp(data_type) and target == "Timestamp(ns))"
    if not is_date and not is_moment:
        return None
    try:
        return pa.scalar(text).cast(data_type).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, OverflowError):
        return None


def _lies_within(value: Any, low: Any, high: Any) -> bool:  # noqa: ANN401
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)
