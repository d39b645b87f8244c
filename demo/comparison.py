"""Row-for-row comparison of a table with what it should hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError

SAMPLE_ROWS = 5
"""Rows shown of each kind of difference."""

_COPIES = "copies"
_EXPECTED_ROW = "__expected_row"
_ACTUAL_ROW = "__actual_row"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One column whose values differ.

    Attributes:
        column: Its name.
        rows: Rows in which it differs.
        sample: The first of them: the key columns, then ``expected`` and ``actual``.
    """

    column: str
    rows: int
    sample: pa.Table


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything in which a table differs from the expectation.

    Attributes:
        expected_rows: Rows of the expectation.
        actual_rows: Rows of the table, duplicates counted.
        missing: Keys that the table lacks.
        extra: Keys that should not be there, each once.
        duplicates: Keys that the table holds more than once, with their number in the column ``copies``.
        changed_rows: Rows of the table with an expected key and at least one wrong value.
        changes: One entry for each column with a wrong value, in the order of the columns.
    """

    expected_rows: int
    actual_rows: int
    missing: pa.Table
    extra: pa.Table
    duplicates: pa.Table
    changed_rows: int
    changes: tuple[ColumnChange, ...]

    @property
    def identical(self) -> bool:
        """Say whether the table holds exactly the expected rows."""
        wrong_keys: int = self.missing.num_rows + self.extra.num_rows + self.duplicates.num_rows
        return wrong_keys + self.changed_rows == 0

    def __str__(self) -> str:
        """Return the verdict for people, with samples of what is wrong."""
        if self.identical:
            return f"identical: {self.actual_rows:,} rows, every key once, every value as expected"
        lines = [f"DIFFERENT: {self.expected_rows:,} rows expected, {self.actual_rows:,} found"]
        lines += _key_lines("missing keys", self.missing)
        lines += _key_lines("extra keys", self.extra)
        lines += _key_lines("duplicate keys", self.duplicates)
        lines.append(f"  changed rows: {self.changed_rows:,}")
        for change in self.changes:
            lines.append(f"    column {change.column}: {change.rows:,} rows differ")
            lines += [f"      {_shown(row)}" for row in change.sample.to_pylist()]
        return "\n".join(lines)


def compare(expected: pa.Table, actual: pa.Table, key: Sequence[str]) -> Difference:
    """Find every difference between a table and what it should hold; the order of rows does not matter.

    NULL equals only NULL. Columns that only ``actual`` has are not looked at.

    Args:
        expected: The truth: flat columns, each key once.
        actual: The table under test. Its columns may have other types that hold the same values.
        key: Columns that identify a row; never NULL.

    Returns:
        The difference; ``identical`` says whether there is none.

    Raises:
        InvalidRequestError: A column is missing, a key is NULL, or ``expected`` repeats a key.
        pyarrow.ArrowInvalid: A value of ``actual`` does not fit the expected type of its column.
    """
    actual = _like_expected(expected, actual)
    names = list(key)
    for side, table in (("expected", expected), ("actual", actual)):
        _require_keys(table, names, side)
    if (repeated := _repeated(expected, names)).num_rows:
        raise InvalidRequestError(
            "the expectation repeats keys",
            remedy="make it one row per key",
            keys=repeated.num_rows,
            first=_shown(repeated.slice(0, 1).to_pylist()[0]),
        )

    joined = _numbered(expected.select(names), _EXPECTED_ROW).join(
        _numbered(actual.select(names), _ACTUAL_ROW), keys=names, join_type="full outer"
    )
    missing = joined.filter(pc.is_null(joined[_ACTUAL_ROW])).select(names)
    extra = joined.filter(pc.is_null(joined[_EXPECTED_ROW])).select(names)
    paired = joined.filter(pc.and_(pc.is_valid(joined[_EXPECTED_ROW]), pc.is_valid(joined[_ACTUAL_ROW])))
    paired = paired.sort_by(_EXPECTED_ROW)
    changed_rows, changes = _changes(expected.take(paired[_EXPECTED_ROW]), actual.take(paired[_ACTUAL_ROW]), names)
    return Difference(
        expected_rows=expected.num_rows,
        actual_rows=actual.num_rows,
        missing=_sorted(missing, names),
        extra=_sorted(extra.group_by(names).aggregate([]), names),
        duplicates=_sorted(_repeated(actual, names), names),
        changed_rows=changed_rows,
        changes=changes,
    )


def _changes(expected: pa.Table, actual: pa.Table, key: list[str]) -> tuple[int, tuple[ColumnChange, ...]]:
    """Compare tables whose rows belong together one by one."""
    any_difference = np.zeros(expected.num_rows, dtype=np.bool_)
    changes = []
    for name in expected.column_names:
        differs = _differs(expected[name], actual[name])
        rows = int(np.count_nonzero(differs))
        if not rows:
            continue
        any_difference |= differs
        shown = pa.array(np.flatnonzero(differs)[:SAMPLE_ROWS])
        sample = expected.select(key).take(shown)
        sample = sample.append_column("expected", expected[name].take(shown))
        sample = sample.append_column("actual", actual[name].take(shown))
        changes.append(ColumnChange(name, rows, sample))
    return int(np.count_nonzero(any_difference)), tuple(changes)


def _differs(expected: pa.ChunkedArray, actual: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return where two columns differ, NULL counting as a value of its own."""
    if_both_valid = pc.fill_null(pc.not_equal(expected, actual), False)
    if pa.types.is_floating(expected.type):
        both_nan = pc.fill_null(pc.and_(pc.is_nan(expected), pc.is_nan(actual)), False)
        if_both_valid = pc.and_not(if_both_valid, both_nan)
    one_is_null = pc.xor(pc.is_null(expected), pc.is_null(actual))
    return np.asarray(pc.or_(if_both_valid, one_is_null), dtype=np.bool_)


def _like_expected(expected: pa.Table, actual: pa.Table) -> pa.Table:
    # Columns and types of the expectation, by name.
    absent = [name for name in expected.column_names if name not in actual.column_names]
    if absent:
        raise InvalidRequestError("the table lacks columns", remedy="read all columns of the table", columns=absent)
    columns = [actual[field.name].cast(field.type) for field in expected.schema]
    # Without the schema of the expectation, which forbids NULL in keys: a NULL key must be found, not be undefined.
    return pa.table(dict(zip(expected.column_names, columns, strict=True)))


def _require_keys(table: pa.Table, key: list[str], side: str) -> None:
    absent = [name for name in key if name not in table.column_names]
    if absent or not key:
        raise InvalidRequestError("the key is not in the table", remedy="name columns that are", columns=absent)
    for name in key:
        if table[name].null_count:
            raise InvalidRequestError(
                "a key is NULL", remedy="correct the table", table=side, column=name, rows=table[name].null_count
            )


def _repeated(table: pa.Table, key: list[str]) -> pa.Table:
    counted = table.select(key).group_by(key).aggregate([([], "count_all")]).rename_columns([*key, _COPIES])
    return counted.filter(pc.greater(counted[_COPIES], 1))


def _numbered(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(np.arange(table.num_rows, dtype=np.int64)))


def _sorted(table: pa.Table, key: list[str]) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in key])


def _key_lines(title: str, keys: pa.Table) -> list[str]:
    return [f"  {title}: {keys.num_rows:,}", *(f"    {_shown(row)}" for row in keys.slice(0, SAMPLE_ROWS).to_pylist())]


def _shown(row: dict[str, object]) -> str:
    return " ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items())
