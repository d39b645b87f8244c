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
from memwal_core.errors import ConflictError, InvalidRequestError


def check_key(table: BaseTable, columns: Sequence[str]) -> TableState:
    """Return what the newest version would be if columns were its primary key.

    Every row is read once, because no two may have the same key, and no key may be NULL.

    Raises:
        InvalidRequestError: As for ``define_key``.
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


def define_key(table: BaseTable, columns: Sequence[str]) -> None:
    """Make columns the primary key of a table, checked as by ``check_key``; do nothing if they are it already.

    Raises:
        InvalidRequestError: A column cannot be part of a key, or rows contradict the key, or the table has another
            key, which cannot be changed. Nothing was written.
        ConflictError: Others changed the table meanwhile. Try again.
    """
    state = table.state()
    if state.primary_key.columns:
        _check_same(state, columns)
        return
    _check_columns(state, columns)
    _check_rows(table, state, columns)
    may_be_null = [name for name in columns if state.schema.field(name).nullable]
    version = state.version
    if may_be_null:
        with table.committing(version) as dataset:
            required: list[Any] = [{"path": name, "nullable": False} for name in may_be_null]
            dataset.alter_columns(*required)
        version = _next(table, version)
    with table.committing(version) as dataset:
        dataset.update_field_metadata(
            {
                name: {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(position)}
                for position, name in enumerate(columns, 1)
            }
        )
    _next(table, version)


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


def _next(table: BaseTable, version: int) -> int:
    """Return the version after one; refuse if others made it or later ones, which nothing was checked of."""
    newest = table.state().version
    if newest != version + 1:
        raise ConflictError(
            "others changed the table while it was given a key",
            remedy="try again; what was done stands",
            table=table.uri,
            expected=version + 1,
            found=newest,
        )
    return newest
