"""Small JSON documents of this project, read as what they are: bytes that anybody may have written.

Whatever cannot be is refused here, where the document and its remedy are known, so that no number, time or text of a
file surprises the code behind: it becomes neither the length of a loop nor an error of arithmetic.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, TypeGuard

from memwal_core.format.malformed import MalformedError
from memwal_core.format.paths import MAX_UINT64

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""A lifetime before the last moment that Python knows, so that adding to a stored moment never leaves its range."""
_MOST_BYTES = 32 << 20
_BYTES_PER_CONTAINER = 32
"""A list or an object takes some hundred bytes of memory however short its text is."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_document(data: bytes, most_bytes: int = _MOST_BYTES) -> Any:  # noqa: ANN401 - parsed JSON
    """Return the values of a document.

    Args:
        data: Its bytes.
        most_bytes: How many there may be, with a list or an object for every 32 of them.

    Raises:
        MalformedError: It is not JSON, nests too deeply, has numbers or texts that JSON does not have, or is larger.
    """
    if len(data) > most_bytes or data.count(b"{") + data.count(b"[") > most_bytes // _BYTES_PER_CONTAINER:
        raise MalformedError(f"{len(data)} bytes are more than a document has")
    try:
        text = data.decode()
        found = json.loads(text, parse_constant=_refuse)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise MalformedError(f"{len(data)} bytes are not a JSON document: {str(error)[:200]}") from error
    return found


def encode_document(document: object, *, indent: int | None = None) -> bytes:
    """Return the bytes of a document, so that ``parse_document`` reads them whatever texts it was given.

    Arguments and names of files that are not UTF-8 are texts that no document has: what is wrong in them becomes
    question marks. What JSON does not know at all becomes text.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(document, indent=indent, separators=separators, default=str)
    if _SURROGATE.search(text):
        text = json.dumps(document, indent=indent, separators=separators, default=str, ensure_ascii=False)
    return text.encode(errors="replace")


def is_text(value: str) -> bool:
    """Return whether a document can have a text as it is."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value is a text that says something, and that a document can have as it is."""
    return isinstance(value, str) and bool(value.strip()) and is_text(value)


def as_number(value: object, *, at_least: int = 0) -> int:
    """Return a whole number within bounds; ``MalformedError`` if the value is none."""
    if type(value) is not int or not at_least <= value <= MAX_UINT64:
        raise MalformedError(
            f"{str(value)[:50] if not isinstance(value, int) else 'a number'} is not a number in range"
        )
    return value


def as_text(value: object) -> str:
    """Return a text; ``MalformedError`` if the value is none."""
    if not isinstance(value, str):
        raise MalformedError(f"a {type(value).__name__} is not a text")
    return value


def as_moment(value: object) -> datetime:
    """Return a moment in UTC; ``MalformedError`` if the value is no ISO 8601 text with a time zone, or out of range."""
    try:
        found = datetime.fromisoformat(as_text(value))
        if found.tzinfo is None:
            raise MalformedError(f"{found} has no time zone")
        found = found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise MalformedError(f"{str(value)[:50]!r} is not a moment: {error}") from error
    if not _EARLIEST <= found <= _LATEST:
        raise MalformedError(f"{found} is out of range")
    return found


def _refuse(constant: str) -> None:
    raise MalformedError(f"{constant} is not a number of JSON")
