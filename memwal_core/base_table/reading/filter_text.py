"""Filters that callers write, looked at before Lance panics at them, overflows its stack, or reads only a beginning."""

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
_JOINT = re.compile(r"\b(?:AND|OR)\b", re.IGNORECASE)
_SEPARATORS = frozenset({"AND", "OR", ","})
_TOKEN = re.compile(r"\w+|[^\w\s]")
_OWN_COLUMN = re.compile(rf"(?<![\w.`]){_LANCES_OWN}(?![\w`])|(?<!\.)`{_LANCES_OWN}`", re.IGNORECASE)

MAX_TERM_TOKENS = 250
"""Words, numbers and signs between two of AND, OR and commas, what stands in parentheses included. What they nest, such
as the summands of a sum, Lance 14 follows in threads of 2 MiB: 470 casts or 600 summands fit, 600 or 1,000 do not."""

MAX_CONDITIONS = 5_000
"""Conditions joined by AND and OR: Lance 14 evaluates 20,000, and 100,000 overflow its stack."""


def require_filter(filter_sql: object) -> None:
    """Refuse with ``InvalidRequestError`` what Lance would not refuse itself.

    No text, parameters, columns of Lance's own, a parenthesis too many, and more than its stack holds. Lance panics at
    parameters. Base table and regions number their rows each for itself, so a condition on a row's number means
    nothing.
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
    _require_shallow(filter_sql)


def conditions_in(filter_sql: str) -> int:
    """Return how many conditions a filter joins by AND and OR, or a few more."""
    return 1 + sum(1 for _ in _JOINT.finditer(_NO_CODE.sub("''", filter_sql)))


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


def _require_shallow(filter_sql: str) -> None:
    """Refuse with ``InvalidRequestError`` a filter of which Lance's stack may overflow."""
    conditions = conditions_in(filter_sql)
    if conditions > MAX_CONDITIONS:
        raise InvalidRequestError(
            "a filter has more conditions than Lance can evaluate",
            remedy="list values with IN, which may be many, or ask in parts",
            filter=filter_sql,
            conditions=conditions,
            most=MAX_CONDITIONS,
        )
    tokens = _longest_term(filter_sql) if len(filter_sql) > MAX_TERM_TOKENS else 0
    if tokens > MAX_TERM_TOKENS:
        raise InvalidRequestError(
            "a condition of a filter is longer than Lance can evaluate",
            remedy="compute long expressions before and write their values, or join shorter conditions by AND and OR",
            filter=filter_sql,
            tokens=tokens,
            most=MAX_TERM_TOKENS,
        )


def _longest_term(filter_sql: str) -> int:
    """Return the most tokens between separators, as those of which an expression nests no more."""
    longest, here = 0, 0
    outer: list[tuple[int, int]] = []
    code = _NO_CODE.sub(lambda found: " " if found[0].startswith(("--", "/*")) else "x", filter_sql).upper()
    for token in _TOKEN.findall(code):
        if token == "(":  # noqa: S105 - of a language
            outer.append((longest, here))
            longest, here = 0, 0
        elif token == ")" and outer:  # noqa: S105 - as above
            inner = max(longest, here)
            longest, here = outer.pop()
            here += inner
        elif token in _SEPARATORS:
            longest, here = max(longest, here), 0
        else:
            here += 1
    return max(longest, here)


def _more_than_a_condition(filter_sql: str) -> InvalidRequestError:
    """Return the error for text behind a condition, which Lance would ignore."""
    return InvalidRequestError(
        "the filter goes on behind its condition",
        remedy="write one condition, its parts joined by AND and OR; a limit and an order are arguments of their own",
        filter=filter_sql,
    )
