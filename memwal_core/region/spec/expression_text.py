"""The text of region expressions: split into tokens, and refused where it could not be pure.

A region value may depend only on its row, now and in ten years. The planner would accept
much more, so what is not row-local, deterministic and stateless is refused by its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from memwal_core.errors import InvalidRequestError

FORBIDDEN_WORDS = frozenset(
    {
        # the clock
        "now",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "today",
        # chance
        "rand",
        "random",
        "uuid",
        # the session, the engine, the file that a row happens to be in
        "version",
        "current_user",
        "session_user",
        "current_catalog",
        "current_schema",
        "input_file_name",
        "file_row_index",
        # the physical type or metadata of a column, which may change while its values stay equal
        "arrow_typeof",
        "arrow_field",
        "arrow_metadata",
        # other rows
        "select",
        "over",
    }
)
"""Words that a region expression may contain only inside a text literal."""

RESERVED_PREFIX = "__"
"""Names with this prefix are used inside evaluation; an expression may not."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>--|/\*)
      | (?P<text>[A-Za-z]?'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9][0-9A-Za-z_.]*)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_REFUSED_SYMBOLS = frozenset(";`$@'\"#\\")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an expression.

    Attributes:
        kind: ``text`` (literal), ``word``, ``number``, ``symbol`` or ``comment`` (its first two characters).
        value: A word in lower case without quotes, everything else as written.
    """

    kind: str
    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One function call in an expression, its name in lower case and the text of each argument."""

    name: str
    start: int
    name_end: int
    arguments: tuple[str, ...]


def check_expression(expression: str) -> None:
    """Refuse an expression that is not deterministic, not stateless, reads other rows, or is not one expression."""
    tokens = split_tokens(expression)
    if not tokens:
        _refuse(expression, "is empty", "")
    depth = 0
    for token in tokens:
        _check_token(expression, token)
        if token.kind == "symbol":
            depth += {"(": 1, ")": -1}.get(token.value, 0)
        if depth < 0:
            break
    if depth:
        _refuse(expression, "has unbalanced parentheses", "")


def _check_token(expression: str, token: Token) -> None:
    if token.kind == "comment" or (token.kind == "symbol" and token.value in _REFUSED_SYMBOLS):
        _refuse(expression, "contains a symbol that is not allowed in an expression", token.value)
    if token.kind == "text" and token.value[0] not in "'xX":
        _refuse(expression, "contains a text literal with a prefix", token.value)
    if token.kind == "word" and (token.value in FORBIDDEN_WORDS or token.value.startswith(RESERVED_PREFIX)):
        _refuse(expression, "is not a deterministic, stateless function of one row", token.value)


def split_tokens(expression: str) -> tuple[Token, ...]:
    """Return the tokens of an expression without white space; nothing is refused here."""
    found: list[Token] = []
    for match in _TOKEN.finditer(expression):
        kind, value = str(match.lastgroup), match.group()
        if kind == "space":
            continue
        if kind == "word":
            value = value.lower()
        elif kind == "quoted":
            kind, value = "word", value[1:-1].replace('""', '"').lower()
        found.append(Token(kind, value, match.start(), match.end()))
    return tuple(found)


def last_call(expression: str, names: frozenset[str]) -> FunctionCall | None:
    """Return the last call of one of ``names`` or None; it contains no other such call."""
    tokens = split_tokens(expression)
    for position in range(len(tokens) - 2, -1, -1):
        token = tokens[position]
        if token.kind == "word" and token.value in names and tokens[position + 1].value == "(":
            return FunctionCall(token.value, token.start, token.end, _arguments(expression, tokens[position + 1 :]))
    return None


def _arguments(expression: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the argument texts of a call whose opening parenthesis is the first token."""
    found: list[str] = []
    depth, begin = 0, tokens[0].end
    for token in tokens:
        if token.kind != "symbol":
            continue
        if token.value in "([{":
            depth += 1
        elif token.value in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and token.value == ","):
            found.append(expression[begin : token.start].strip())
            begin = token.end
        if depth == 0:
            break
    return tuple(found) if found != [""] else ()


def _refuse(expression: str, problem: str, found: str) -> NoReturn:
    raise InvalidRequestError(
        f"this region expression {problem}",
        remedy="write one SQL expression over col0, col1, ... that depends only on its row",
        expression=expression,
        found=found,
    )
