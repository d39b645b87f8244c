"""Evaluation of region expressions: DataFusion SQL over ``col0``, ``col1``, ...

``murmur3`` and ``murmur3_multi`` take columns of any hashable type, while a DataFusion function
written in Python has one fixed signature. So each call in an expression gets a function of its
own, made for the types of its arguments. They give the signed 32-bit hash as an int64, on which
``abs`` is defined for every hash (D-30).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext, SQLOptions, udf

from memwal_core.errors import InvalidRequestError
from memwal_core.native.panics import panics_raised
from memwal_core.region.spec.byte_form import check_hashable
from memwal_core.region.spec.columns import plain_array, plain_type, widened
from memwal_core.region.spec.expression_text import RESERVED_PREFIX, check_expression, last_call
from memwal_core.region.spec.murmur3 import murmur3_multi

_HASHES = frozenset({"murmur3", "murmur3_multi"})
_SOURCE = "source"
_ROWS = f"{RESERVED_PREFIX}rows"
"""A column that is always there, so that a batch without source columns still has its rows."""

_ROW_LOCAL_PLAN = ("Projection", "TableScan")
_REMOVED_TYPES = (pa.null(), pa.int64(), pa.string(), pa.timestamp("us"), pa.binary(), pa.bool_())
"""Types tried for a column that the schema no longer has: its NULLs need one that plans."""


def evaluate_expression(expression: str, columns: Sequence[pa.Array | None], num_rows: int) -> pa.Array:
    """Evaluate an expression over whole columns (None: a removed column, NULL in every row).

    The result keeps the order of the rows and has the type that the planner gives it. Integers are
    widened to int64 and floats to double first, so that promoting a column never changes a value.
    """
    check_expression(expression)
    *others, last = _REMOVED_TYPES if any(column is None for column in columns) else _REMOVED_TYPES[:1]
    for removed in others:
        with contextlib.suppress(InvalidRequestError):
            return _evaluate(expression, _bound(columns, num_rows, removed), num_rows)
    return _evaluate(expression, _bound(columns, num_rows, last), num_rows)


def _bound(columns: Sequence[pa.Array | None], num_rows: int, removed: pa.DataType) -> list[pa.Array]:
    return [pa.nulls(num_rows, removed) if column is None else widened(column) for column in columns]


def _evaluate(expression: str, columns: Sequence[pa.Array], num_rows: int) -> pa.Array:
    context = _context(columns, num_rows)
    frame = _planned(context, _with_hash_functions(context, expression), expression)
    _check_row_local(frame, expression)
    try:
        with panics_raised():
            table = frame.to_arrow_table()
    except Exception as error:  # noqa: BLE001 - DataFusion raises plain Exception when a row fails
        _refuse(expression, error, error)
    return plain_array(table.column(0))


def _context(columns: Sequence[pa.Array], num_rows: int) -> SessionContext:
    # One partition: with more, DataFusion may give the rows back in another order.
    context = SessionContext(SessionConfig().with_target_partitions(1))
    names = [_ROWS, *(f"col{position}" for position in range(len(columns)))]
    batch = pa.record_batch([pa.nulls(num_rows, pa.bool_()), *columns], names=names)
    context.register_record_batches(_SOURCE, [[batch]])
    return context


def _planned(context: SessionContext, planned: str, expression: str) -> DataFrame:
    options = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    try:
        # The text was checked to be one expression, and statements are off.
        with panics_raised():
            return context.sql_with_options(f"SELECT ({planned}) AS value FROM {_SOURCE}", options)  # noqa: S608 - see above
    except Exception as error:  # noqa: BLE001 - DataFusion raises ValueError or plain Exception
        _refuse(expression, error, error)


def _with_hash_functions(context: SessionContext, expression: str) -> str:
    """Register a function per hash call and return the expression that calls them."""
    planned, count = expression, 0
    while (call := last_call(planned, _HASHES)) is not None:
        if not call.arguments or (call.name == "murmur3" and len(call.arguments) > 1):
            _refuse(expression, f"{call.name} does not take {len(call.arguments)} arguments")
        kinds = [plain_type(_planned(context, text, expression).schema().field(0).type) for text in call.arguments]
        for kind in kinds:
            check_hashable(kind)
        name = f"{RESERVED_PREFIX}{call.name}_{count}"
        context.register_udf(udf(_hash, kinds, pa.int64(), "immutable", name=name))
        planned, count = planned[: call.start] + name + planned[call.name_end :], count + 1
    return planned


def _hash(*columns: pa.Array) -> pa.Array:
    return murmur3_multi(columns).cast(pa.int64())


def _check_row_local(frame: DataFrame, expression: str) -> None:
    """Refuse plans with anything between the scan and the projection: aggregates, windows, unnesting."""
    plan, kinds = frame.logical_plan(), []
    while True:
        kinds.append(type(plan.to_variant()).__name__)
        inputs = plan.inputs()
        if not inputs:
            break
        plan = inputs[0]
    if tuple(kinds) != _ROW_LOCAL_PLAN:
        _refuse(expression, f"it reads more than one row ({', '.join(kinds[1:-1])})")


def _refuse(expression: str, problem: object, cause: Exception | None = None) -> NoReturn:
    raise InvalidRequestError(
        "this region expression cannot be evaluated",
        remedy="correct the expression; it is DataFusion SQL over col0, col1, ... in the order of source_ids",
        expression=expression,
        problem=str(problem),
    ) from cause
