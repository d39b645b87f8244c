"""Values of any type, to ask Lance what it makes of the type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from memwal_core.native.casting import cast, is_list, unwrapped


def example(kind: pa.DataType, count: int) -> pa.Array:
    """Return ``count`` equal values of a type, without a NULL in or around them where the type allows that."""
    return cast(pa.array([_value(kind)] * count, unwrapped(kind)), kind)


def _value(kind: pa.DataType) -> Any:  # noqa: ANN401 - a value of any type
    """Return a value of a type without a NULL in it where the type can be nested, else one of its zeros."""
    kind = unwrapped(kind)
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_value(kind.key_type), _value(kind.item_type))]
    if is_list(kind):
        return [_value(kind.value_type)] * (kind.list_size if pa.types.is_fixed_size_list(kind) else 2)
    return _zero(kind)


def _zero(kind: pa.DataType) -> Any:  # noqa: ANN401 - a value of any type
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if pa.types.is_null(kind) or pa.types.is_interval(kind):
        return None
    return b"" if "binary" in str(kind) else "" if "string" in str(kind) else 0
