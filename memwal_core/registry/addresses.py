"""Names, addresses and patterns in one spelling, so that no other spelling leaves a pattern or avoids one."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import (
    BATCHES_DIRECTORY,
    DELETIONS_DIRECTORY,
    INDEX_DIRECTORY,
    MEM_WAL_DIRECTORY,
    REPAIR_DIRECTORY,
    TABLE_VERSIONS_DIRECTORY,
    TRANSACTIONS_DIRECTORY,
)
from memwal_core.storage.address import SCHEMES, canonical_uri

NAME = r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$"
"""What people call a table, a source, a target. No address looks like one, and so no name stands for two things."""

_NAME = re.compile(NAME)
LONGEST = 1000
"""Characters of a text that a run may give."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OF_TABLES = {
    MEM_WAL_DIRECTORY, BATCHES_DIRECTORY, REPAIR_DIRECTORY, TABLE_VERSIONS_DIRECTORY, INDEX_DIRECTORY,
    DELETIONS_DIRECTORY, TRANSACTIONS_DIRECTORY,
}  # fmt: skip
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(.*)$")
_BEGINS_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WILDCARD = re.compile(r"[*?\[]")
_PLAIN_PART = re.compile(r"[^\x00-\x1f\x7f\\%#{}\[\]/]+")


def require_line(text: str) -> str:
    """Return a text that a run gives, if it is one line of bounded length: logs, alerts and processes are told it.

    Raises:
        InvalidRequestError: It has control characters, or is too long.
    """
    if not is_line(text):
        raise InvalidRequestError(
            "a text of this run is too long, or has control characters",
            remedy=f"give one line of at most {LONGEST} characters",
            characters=len(text),
            begins=text[:50],
        )
    return text


def is_line(text: str) -> bool:
    """Return whether a text is one line of bounded length."""
    return len(text) <= LONGEST and not _CONTROL.search(text)


def canonical(name_or_uri: str) -> str:
    """Return a name unchanged, and an address in its one spelling.

    Raises:
        InvalidRequestError: It is neither.
    """
    return name_or_uri if is_table_name(name_or_uri) else canonical_uri(name_or_uri)


def canonical_from(folder: str, uri: str) -> str:
    """Return an address in its one spelling; a relative path begins in a folder, wherever the process works.

    Raises:
        InvalidRequestError: It is no address.
    """
    is_path = uri == uri.strip() and not _BEGINS_WITH_SCHEME.match(uri)
    return canonical_uri(os.path.join(folder, uri) if is_path else uri)


def is_table_name(text: str) -> bool:
    """Return whether a text is a name; where an address is wanted, the same text would be a relative path."""
    return _NAME.fullmatch(text) is not None


def canonical_pattern(pattern: str) -> str:
    """Return a pattern over names, or over addresses in their one spelling.

    Raises:
        ValueError: No address in its one spelling looks like that, so that it would match nothing.
    """
    text = re.sub(r"(?<!:)/{2,}", "/", pattern).rstrip("/") or "/"
    if any(part in {".", ".."} for part in text.split("/")):
        raise ValueError(f"the pattern {pattern!r} has '.' or '..' parts; addresses are compared without them")
    if found := _SCHEME.match(text):
        scheme, bucket, path = found.groups()
        scheme = {"s3a": "s3"}.get(scheme.lower(), scheme.lower())
        if scheme not in SCHEMES:
            raise ValueError(f"the pattern {pattern!r} has a scheme that no table has; known are {', '.join(SCHEMES)}")
        return _local(path) if scheme == "file" else f"{scheme}://{bucket.lower()}{path}"
    if text.startswith("/"):
        return _local(text)
    if not _WILDCARD.match(text) and set(text) & {"/", ":", "\\"}:
        raise ValueError(f"the pattern {pattern!r} is neither of names nor of absolute paths and addresses")
    return text


def is_matched(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Return whether a pattern in its one spelling matches one of the names; ``*`` also matches slashes."""
    found = tuple(names)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in found)


def places_of(address: str) -> Iterator[str]:
    """Yield an address in its one spelling, and every place that it lies in, from the inside out."""
    root, _, path = address.rpartition("://")
    place = path.rstrip("/")
    while place:
        yield f"{root}://{place}" if root else place
        place = place.rpartition("/")[0]


def names_inside_of_table(address: str) -> bool:
    """Return whether an address has a part that only directories of tables have."""
    return any(part in _OF_TABLES for part in address.split("/"))


def below(address: str, relative: str) -> str:
    """Return an address below another one.

    Args:
        address: In its one spelling.
        relative: Parts with single slashes between them, perhaps with ``*`` and ``?``; empty = the address itself.

    Raises:
        InvalidRequestError: It leaves the address, by dots, by a symbolic link, or by another spelling of a slash.
    """
    if not relative:
        return address
    parts = relative.split("/")
    if any(part in {".", ".."} or not _PLAIN_PART.fullmatch(part) for part in parts):
        raise InvalidRequestError(
            "a path below a registered address has plain parts only",
            remedy="give parts with single slashes between them, without '.', '..', '%', braces or brackets",
            path=relative,
        )
    if address.startswith("/") and any(os.path.realpath(path) != path for path in _local_places(address, parts)):
        raise InvalidRequestError(
            "a path below a registered address must not leave it through a symbolic link",
            remedy="register the address that the link leads to",
            path=relative,
        )
    return f"{address}/{relative}"


def _local_places(address: str, parts: list[str]) -> list[str]:
    """Return what a path below a directory stands for now: itself, or what its wildcards find."""
    place = os.path.join(address, *parts)
    fixed = os.path.join(address, *_before_wildcards(parts))
    if place == fixed:
        return [place]
    pattern = os.path.join(glob.escape(address), *parts)
    return [fixed, *glob.iglob(pattern, include_hidden=True)]


def _before_wildcards(parts: list[str]) -> list[str]:
    first = next((number for number, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return parts[:first]


def _local(pattern: str) -> str:
    parts = pattern.strip("/").split("/")
    fixed = _before_wildcards(parts)
    return "/".join([os.path.realpath("/" + "/".join(fixed)).rstrip("/"), *parts[len(fixed) :]]) or "/"
