"""Where a store's root is: reading and normalising URIs, checking relative paths."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from memwal_core.errors import InvalidRequestError
from memwal_core.storage.protocol import StoreKind

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of unfinished files: no listing shows them, and no object may have such a name."""

_SCHEMES = {
    "s3": StoreKind.S3,
    "s3a": StoreKind.S3,
    "gs": StoreKind.GCS,
    "az": StoreKind.AZURE,
    "memory": StoreKind.MEMORY,
    "file": StoreKind.LOCAL,
}
_BUCKET = re.compile(r"[0-9A-Za-z]([0-9A-Za-z._-]*[0-9A-Za-z])?")
SCHEMES = tuple(_SCHEMES)
"""Of addresses, in lower case."""

_SCHEME_PATTERN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_NO_TEXT = re.compile(r"[\ud800-\udfff]")
"""What Python makes of bytes that are no UTF-8, in arguments and names of files."""

_REFUSED_CHARACTERS = re.compile(r"[\x00-\x1f\x7f?#%\\*]")


@dataclass(frozen=True, slots=True)
class Address:
    """A store's root, normalised.

    Attributes:
        bucket: Bucket or container; empty for local paths and memory.
        prefix: Path below the bucket, or the absolute local path; no slash at the end.
    """

    kind: StoreKind
    bucket: str
    prefix: str

    @property
    def uri(self) -> str:
        """The root as pylance opens it, without a final slash."""
        if self.kind is StoreKind.LOCAL:
            return self.prefix
        root = f"{self.kind.value}://{self.bucket}"
        return f"{root}/{self.prefix}" if self.prefix else root


def as_uri(uri: str | os.PathLike[str]) -> str:
    """Return an address or a path as text, or raise ``InvalidRequestError`` if it is neither."""
    try:
        text: object = os.fspath(uri)
    except TypeError:
        text = uri
    if not isinstance(text, str):
        raise InvalidRequestError(
            "the address is neither text nor a path",
            remedy="pass a path, or an address such as s3://bucket/table.lance",
            found=type(uri).__name__,
        )
    return text


def parse_address(uri: str) -> Address:
    """Read a root URI.

    Accepted are plain paths (relative ones are taken from the working directory), ``file://``,
    ``memory://``, ``s3://`` (also ``s3a://``), ``gs://`` and ``az://``. In ``file://``, as for Lance, ``%20`` is a
    blank; addresses of object stores have no percent signs. A query or fragment is refused rather than cut off,
    because the address would then name another place than the one written.
    """
    if not uri or uri != uri.strip():
        _refuse(uri, "it is empty, or begins or ends with a blank")
    if _NO_TEXT.search(uri):
        _refuse(uri, "it is no text in UTF-8, which Lance wants of names")
    if uri == "~" or uri.startswith("~/"):
        _refuse(uri, "only a shell takes ~ for the home directory; write ./~ for a directory of this name")
    match = _SCHEME_PATTERN.match(uri)
    if match is None:
        return _local(uri, uri)
    kind = _SCHEMES.get(match.group(1).lower())
    rest = uri[match.end() :]
    if kind is not None and not rest.startswith("//"):
        _refuse(uri, f"its scheme is followed by two slashes, as in {match.group(1)}://")
    if kind is None:
        _refuse(uri, "the scheme is unknown; known are a plain path, file, memory, s3, gs and az")
    if _REFUSED_CHARACTERS.search(rest.replace("%", "") if kind is StoreKind.LOCAL else rest):
        _refuse(uri, "it contains a query, a fragment, a percent sign, a backslash or a control character")
    return _local_uri(uri, rest[2:]) if kind is StoreKind.LOCAL else _bucket(uri, kind, rest[2:])


def canonical_uri(uri: str) -> str:
    """Return the one spelling of an address, in which addresses are compared.

    Scheme and bucket are in lower case, local paths are absolute and without symbolic links; no address has empty,
    ``.`` or ``..`` parts, percent signs or a slash at its end.
    """
    address = parse_address(uri)
    if address.kind is StoreKind.LOCAL:
        return parse_address(os.path.realpath(address.prefix)).prefix  # A link may lead to what would be refused.
    return replace(address, bucket=address.bucket.lower()).uri


def local_path(place: str) -> str:
    """Return the absolute path of a file or directory that must be on this machine; ``file://`` is left out.

    Raises:
        InvalidRequestError: It is an address of an object store, or of nothing known.
    """
    address = parse_address(place)
    if address.kind is not StoreKind.LOCAL:
        raise InvalidRequestError(
            "an object store cannot be used here", remedy="give a path of this machine", path=address.uri
        )
    return address.prefix


def check_path(path: str) -> str:
    """Return a relative path unchanged if every store and pylance take it literally.

    Refused are empty and absolute paths, empty, ``.`` and ``..`` parts, characters with a meaning in
    addresses, and names of unfinished files.
    """
    if not path or _REFUSED_CHARACTERS.search(path):
        _refuse_path(path)
    for part in path.split("/"):
        if part in {"", ".", ".."} or part.startswith(TEMPORARY_PREFIX):
            _refuse_path(path)
    return path


def check_prefix(prefix: str) -> str:
    """Return a directory without its final slash; the empty string stands for the root."""
    trimmed = prefix.removesuffix("/")
    return check_path(trimmed) if trimmed or prefix else ""


def check_subtree(prefix: str) -> str:
    """Return a directory that may be removed: any except the root."""
    directory = check_prefix(prefix)
    if not directory:
        raise InvalidRequestError(
            "the root of a store must not be removed as a whole", remedy="name a directory below it", prefix=prefix
        )
    return directory


def check_range(path: str, start: int, length: int) -> None:
    """Refuse a negative offset or length."""
    if start < 0 or length < 0:
        raise InvalidRequestError(
            "this byte range is negative",
            remedy="give an offset and a length from 0",
            path=path,
            start=start,
            length=length,
        )


def is_temporary(path: str) -> bool:
    """Return whether a path is an unfinished file or lies below such a name."""
    return path.startswith(TEMPORARY_PREFIX) or f"/{TEMPORARY_PREFIX}" in path


def _bucket(uri: str, kind: StoreKind, rest: str) -> Address:
    bucket, _, prefix = rest.partition("/")
    if kind is not StoreKind.MEMORY and not bucket:
        _refuse(uri, "the bucket is missing")
    if "@" in bucket or ":" in bucket:
        _refuse(uri, "it contains credentials, a container's account or a port; give them as storage options")
    if bucket and not _BUCKET.fullmatch(bucket):
        _refuse(
            uri, "a bucket has letters, digits, dots, hyphens and underscores, the first and last a letter or digit"
        )
    prefix = prefix.rstrip("/")
    _refuse_blank_end(uri, prefix)
    return Address(kind=kind, bucket=bucket, prefix=check_path(prefix) if prefix else "")


def _local_uri(uri: str, rest: str) -> Address:
    if not rest.startswith("/"):
        _refuse(uri, "a file:// address needs an absolute path, as in file:///data/table")
    try:
        return _local(uri, unquote(rest, errors="strict"))  # As Lance does; a percent sign without digits stays.
    except UnicodeDecodeError:
        _refuse(uri, "its percent signs encode no text in UTF-8, which Lance wants of names")


def _local(uri: str, path: str) -> Address:
    if "\x00" in path or "?" in path or "#" in path:
        _refuse(uri, "a path must not contain '?', '#' or NUL, which other tools take for the end of the path")
    prefix = _absolute(path)
    if _NO_TEXT.search(prefix):
        _refuse(uri, "a directory above it has a name that is no text in UTF-8, which Lance wants")
    _refuse_blank_end(uri, prefix)
    return Address(kind=StoreKind.LOCAL, bucket="", prefix=prefix)


def _absolute(path: str) -> str:
    """Return the absolute path to where the operating system goes: ``..`` is the parent of what a link leads to."""
    parts = path.split(os.sep)
    if ".." in parts:
        after = len(parts) - parts[::-1].index("..")
        path = os.path.join(os.path.realpath(os.sep.join(parts[:after])), *parts[after:])
    return os.path.abspath(path)


def _refuse_blank_end(uri: str, prefix: str) -> None:
    """Refuse what ends with a blank without its slashes, for without them it would be another address."""
    if prefix != prefix.rstrip():
        _refuse(uri, "it ends with a blank before its slashes")


def _refuse(uri: str, why: str) -> NoReturn:
    # The part between scheme and path, or after a question mark, may be a secret.
    try:
        parts = urlsplit(uri)
        scheme = f"{parts.scheme}:" if parts.scheme else ""
        shown = f"{scheme}//{parts.hostname or ''}{parts.path}" if parts.netloc else f"{scheme}{parts.path}"
    except ValueError:
        shown = "(unreadable)"
    raise InvalidRequestError(f"the address cannot be used: {why}", remedy="correct the address", uri=shown)


def _refuse_path(path: str) -> NoReturn:
    raise InvalidRequestError(
        "the path cannot be used below a store's root",
        remedy="give parts separated by single slashes, without '..', '?', '#', '%', '*', backslash or '.tmp-' names",
        path=path,
    )
