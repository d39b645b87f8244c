"""Giving a table that has rows a primary key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from memwal_core.base_table.keys.counts import count_keys
from memwal_core.base_table.keys.primary_key import PRIMARY_KEY, PRIMARY_KEY_POSITION, PrimaryKey, is_key_type
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.errors import InvalidRequestError


def check_key(table: BaseTable, columns: Sequence[str]) -> TableState:
    """Return what the newest version would be if columns were its primary key.

    Every row is read once, because no two may have the same key, and no key may be NULL.

    Raises:
        InvalidRequestError: A column cannot be part of a key, or rows contradict the key, or the table has another
            key, which cannot be changed.
    """
    state = table.state()
    if state.primary_key.columns:
        _check_same(state, columns)
        return state
    _check_columns(state, columns)
    _check_rows(table, state, columns)
    fields = [field.with_nullable(False) if field.name in columns else field for field in state.schema]
    key = PrimaryKey(tuple(columns), tuple(state.field_ids[name] for name in columns))
    return replace(state, schema=pa.schema(fields, metadata=state.schema.metadata), primary_key=key)


def define_key(table: BaseTable, keyed: TableState) -> None:
    """Make the primary key that ``check_key`` returned that of the table; do nothing if it is already.

    Raises:
        ConflictError: Others changed the table meanwhile, and their rows may contradict the key. Try again.
    """
    version, columns = keyed.version, keyed.primary_key.columns
    state = table.state(version)
    if state.primary_key.columns:
        return
    may_be_null = [name for name in columns if state.schema.field(name).nullable]
    if may_be_null:
        with table.committing(version, strictly=True) as dataset:
            required: list[Any] = [{"path": name, "nullable": False} for name in may_be_null]
            dataset.alter_columns(*required)
        version += 1
    with table.committing(version, strictly=True) as dataset:
        dataset.update_field_metadata(
            {
                name: {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(position)}
                for position, name in enumerate(columns, 1)
            }
        )


def _check_same(state: TableState, columns: Sequence[str]) -> None:
    if state.primary_key.columns != tuple(columns):
        raise InvalidRequestError(
            "the table has another primary key, and a key cannot be changed",
            remedy="name the same columns, or copy the rows into a new table",
            key=list(state.primary_key.columns),
            asked=list(columns),
        )


def _check_columns(state: TableState, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in state.schema.names or not is_key_type(state.schema.field(name).type):
            raise InvalidRequestError(
                "this cannot be a column of a primary key",
                remedy="name top-level columns of integers, booleans, text or binary",
                column=name,
                type=str(state.schema.field(name).type) if name in state.schema.names else "no such column",
                columns=state.schema.names[:20],
            )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidRequestError(
            "the key names a column twice, or none", remedy="name each column once", key=list(columns)
        )


def _check_rows(table: BaseTable, state: TableState, columns: Sequence[str]) -> None:
    dataset = table.dataset(state.version)
    counted = count_keys(dataset, columns)
    if counted.rows != counted.keys:
        raise InvalidRequestError(
            "several rows have the same key",
            remedy="choose other columns, or remove the copies",
            rows=counted.rows,
            keys=counted.keys,
            repeated=[dict(each) for each in counted.repeated],
        )
    for name in columns:
        # count_keys counts NULL as a key of its own, and one row may have it.
        if nulls := dataset.count_rows(filter=f"`{name}` IS NULL"):
            raise InvalidRequestError(
                "rows without a value cannot be identified by this column",
                remedy="choose another column, or fill it",
                column=name,
                rows=nulls,
            )
