"""Filters that callers write, looked at before Lance panics at them or reads only their beginning."""

from __future__ import annotations

import itertools
import re

import lance

from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import CREATED_AT, ROW_ADDRESS, ROW_ID, ROW_OFFSET, UPDATED_AT

_NO_CODE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_PARAMETER = re.compile(r"(?<![\w$])(?:\?\d*|\$\w+(?![\w$]))|(?<![\w:\])]):[A-Za-z_]\w*")
_LANCES_OWN = f"(?:{'|'.join((ROW_ID, ROW_ADDRESS, ROW_OFFSET, CREATED_AT, UPDATED_AT))})"
_OWN_COLUMN = re.compile(rf"(?<![\w.`]){_LANCES_OWN}(?![\w`])|(?<!\.)`{_LANCES_OWN}`", re.IGNORECASE)


def require_filter(filter_sql: object) -> None:
    """Refuse with ``InvalidRequestError`` no text, parameters, columns of Lance's own, and a parenthesis too many.

    Lance panics at parameters. Base table and regions number their rows each for itself, so a condition on a row's
    number means nothing.
    """
    if not isinstance(filter_sql, str):
        raise InvalidRequestError("a filter is text", remedy="pass a condition in Lance's SQL", filter=filter_sql)
    parameter = _PARAMETER.search(_NO_CODE.sub("''", filter_sql))
    if parameter is not None:
        raise InvalidRequestError(
            "a filter has no parameters",
            remedy="write the value itself; text stands in single quotes, and a single quote in it twice",
            filter=filter_sql,
            parameter=parameter[0],
        )
    own = _OWN_COLUMN.search(_NO_CODE.sub(lambda found: found[0] if found[0].startswith("`") else "''", filter_sql))
    if own is not None:
        raise InvalidRequestError(
            "a filter cannot use Lance's own columns: each source of rows has its own ids, addresses and versions",
            remedy="write the condition with columns of the table",
            filter=filter_sql,
            column=own[0],
        )
    parentheses = re.findall(r"[()]", _NO_CODE.sub("''", filter_sql))
    if min(itertools.accumulate(1 if each == "(" else -1 for each in parentheses), default=0) < 0:
        raise _more_than_a_condition(filter_sql)


def require_whole_filter(dataset: lance.LanceDataset, filter_sql: str) -> None:
    """Refuse with ``InvalidRequestError`` what Lance does not accept, or of what it would ignore the end; reads no row.

    Lance takes the longest condition at the beginning of a text. Only all of it stands between parentheses; those of
    the text are even, which ``require_filter`` looks at.
    """
    try:
        _parse(dataset, f"({filter_sql}\n)")
    except InvalidRequestError as error:
        _parse(dataset, filter_sql)  # Lance's own words, about the text as it is.
        raise _more_than_a_condition(filter_sql) from error


def _parse(dataset: lance.LanceDataset, filter_sql: str) -> None:
    with translated("read the filter", dataset.uri):
        dataset.scanner(columns=[], with_row_id=True, filter=filter_sql, use_scalar_index=False).explain_plan()


def _more_than_a_condition(filter_sql: str) -> InvalidRequestError:
    """Return the error for text behind a condition, which Lance would ignore."""
    return InvalidRequestError(
        "the filter goes on behind its condition",
        remedy="write one condition, its parts joined by AND and OR; a limit and an order are arguments of their own",
        filter=filter_sql,
    )
