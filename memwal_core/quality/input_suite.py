"""Expectation suites for rows that are about to be written: a batch that fails is refused whole.

Importing this module takes seconds, because of Great Expectations: import it only where a suite is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import pandas as pd
import pyarrow as pa
from great_expectations.expectations import Expectation
from pyspark.sql import DataFrame

from memwal_core.errors import InvalidRequestError
from memwal_core.quality.expectations import ExpectationRun, load_suite

_SAMPLE_ROWS = 5
_IDENTIFYING_COLUMNS = 8


def frame_check(files: Sequence[str]) -> Callable[[DataFrame], None]:
    """Return a check of Spark DataFrames by users' suites.

    The check raises ``InvalidRequestError`` if a row fails; the facts name the expectations and show sample rows.

    Args:
        files: As for ``load_suite``. They are read now, so that a wrong one stops everything before it begins.

    Raises:
        InvalidRequestError: A file has no suite. Correct the path or the file.
    """
    suites = [load_suite(file) for file in files]

    def check(frame: DataFrame) -> None:
        _require(ExpectationRun(), suites, frame, frame.columns)

    return check


def arrow_check(files: Sequence[str]) -> Callable[[pa.Table], None]:
    """Return a check of Arrow tables by users' suites, for ``TableWriter.open``.

    It runs through pandas and takes tens of milliseconds per batch, so write large batches. It raises as that of
    ``frame_check``.

    Raises:
        InvalidRequestError: A file has no suite. Correct the path or the file.
    """
    suites = [load_suite(file) for file in files]

    def check(rows: pa.Table) -> None:
        frame = pd.DataFrame({name: _series(name, rows.column(name)) for name in rows.schema.names})
        _require(ExpectationRun(engine="pandas"), suites, frame, rows.schema.names)

    return check


def _series(name: str, column: pa.ChunkedArray) -> pd.Series:
    """Return values as pandas has them.

    Raises:
        InvalidRequestError: Neither pandas nor Python has them, for example a time of day with nanoseconds.
    """
    try:
        return column.to_pandas(integer_object_nulls=True)  # Beside NULL, pandas would make floats of integers.
    except (pa.ArrowInvalid, ValueError, OverflowError):
        pass  # Python has no dates outside of the years 1 to 9999; pandas has.
    try:
        return column.to_pandas(integer_object_nulls=True, date_as_object=False)
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise InvalidRequestError(
            "the table's expectations cannot be checked: pandas has no such value",
            remedy="correct the value at its source, or write without suites",
            column=name,
            type=str(column.type),
            reason=str(error),
        ) from error


def _require(
    examination: ExpectationRun,
    suites: Sequence[tuple[str, list[Expectation]]],
    frame: DataFrame | pd.DataFrame,
    columns: Sequence[str],
) -> None:
    """Raise ``InvalidRequestError`` unless all suites are met."""
    identify = list(columns)[:_IDENTIFYING_COLUMNS]
    failed = [
        finding
        for name, expectations in suites
        # Copies, because an expectation can belong to only one run.
        for finding in examination.expect(name, frame, [copy(each) for each in expectations], identify, _SAMPLE_ROWS)
        if not finding.success
    ]
    if failed:
        rows = [{name: str(value) for name, value in row.items()} for finding in failed for row in finding.rows]
        raise InvalidRequestError(
            "rows of the batch do not meet the table's expectations; the whole batch was refused",
            remedy="correct the rows at their source, or the suite if it is too strict",
            suites=[name for name, _ in suites],
            failed=[finding.evidence for finding in failed],
            sample_rows=rows[:_SAMPLE_ROWS],
        )
