"""The only place where errors of storage libraries become errors of this package."""

from __future__ import annotations

import errno
import re

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from memwal_core.errors import (
    InvalidRequestError,
    MemwalError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.native.panics import NativePanicError, panic_of
from memwal_core.redaction import harmless, redact
from memwal_core.text import without_request

_STATUS = re.compile(r"status code: (\d{3})")
_BAD_RANGE = re.compile(r"Invalid range|StartTooLarge|InvalidRange")
_WRONG_REGION = re.compile(r"incorrectly configured region|redirect", re.IGNORECASE)
_DENIED = re.compile(r"code: (AccessDenied|AllAccessDisabled)\b")
"""Of an object among several to delete: the answer as a whole is a success."""
_NO_BUCKET = "NoSuchBucket"
_TRANSIENT_STATUS = frozenset({408, 409, 412, 429})
_TIMED_OUT = "<Code>RequestTimeout</Code>"
"""What S3 answers, with the status 400, to a request whose bytes stopped coming."""
_NOT_IMPLEMENTED_STATUS = 501
_REFUSED = (PermissionDeniedError, UnauthenticatedError, PermissionError)
_READS = frozenset({"get", "get_range"})
_CONDITIONAL = "put_if_absent"
_CANNOT_ACCEPT = "the file system cannot accept this request"
_REFUSED_ERRNO = {
    errno.EISDIR: "a directory is where a file would be",
    errno.ENOTDIR: "a part of the path is a file, where a directory would be",
    errno.ENAMETOOLONG: "a part of the path is too long for the file system",
    errno.ELOOP: _CANNOT_ACCEPT,
    errno.EXDEV: _CANNOT_ACCEPT,
    errno.EMLINK: _CANNOT_ACCEPT,
    errno.EOPNOTSUPP: _CANNOT_ACCEPT,
}
_TRANSLATED = (BaseError, OSError, ValueError, NotImplementedError, NativePanicError)
_MAX_REASON_LENGTH = 300


class store_errors_translated:  # noqa: N801 - used like a function, of which each request makes several
    """Turn errors of obstore and of the operating system into this package's, in the block that follows.

    ``operation`` is for the message; ``store`` must be free of secrets.
    """

    __slots__ = ("_operation", "_path", "_store")

    def __init__(self, operation: str, path: str, store: str) -> None:
        self._operation = operation
        self._path = path
        self._store = store

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        """End it; raise the translation of an error that ended it, if it has one."""
        if error is None:
            return
        error = panic_of(error) or error
        if isinstance(error, _TRANSLATED):
            facts: dict[str, object] = {"operation": self._operation, "path": self._path, "store": self._store}
            # The library's text may hold a signature or password; then it must not be chained.
            raise _classified(error, facts) from harmless(error)


def describe(error: BaseException) -> str:
    """Return the first line of a library's error, without secrets."""
    lines = str(error).splitlines()
    first = lines[0] if lines else type(error).__name__
    return redact(without_request(first))[:_MAX_REASON_LENGTH]


def _classified(error: Exception, facts: dict[str, object]) -> MemwalError:
    if _NO_BUCKET in str(error):
        return InvalidRequestError("the bucket does not exist", remedy="create it, or correct the address", **facts)
    is_other_kind = isinstance(error, NotADirectoryError | IsADirectoryError)
    if isinstance(error, FileNotFoundError) or (is_other_kind and facts["operation"] in _READS):
        return ObjectNotFoundError(
            "the object does not exist", remedy="check the path, or create the object first", **facts
        )
    # obstore says the same of every answer 409; to a request without a condition that is a passing refusal.
    is_taken = isinstance(error, AlreadyExistsError) and facts["operation"] == _CONDITIONAL
    if is_taken or isinstance(error, FileExistsError):
        return ObjectExistsError("the object already exists", remedy="read it before deciding anything", **facts)
    facts["reason"] = describe(error)
    if isinstance(error, _REFUSED) or _DENIED.search(str(error)):
        return StoreRefusedError(
            "the store refused access", remedy="check credentials and permissions for this path", **facts
        )
    if isinstance(error, OSError):
        return _classified_os_error(error, facts)
    if isinstance(error, NotImplementedError | NotSupportedError):
        return _unsupported(facts)
    if isinstance(error, ValueError | InvalidPathError | UnknownConfigurationKeyError):
        return InvalidRequestError(
            "the store cannot accept this request", remedy="correct the path or the storage options", **facts
        )
    return _classified_generic(error, facts)


def _classified_os_error(error: OSError, facts: dict[str, object]) -> MemwalError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return UnavailableError("the disk is full", remedy="free space, then try again", **facts)
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return UnavailableError(
            "too many files are open", remedy="let the process open more of them (ulimit -n), then try again", **facts
        )
    if error.errno == errno.EROFS:
        return StoreRefusedError("the file system is read-only", remedy="mount it for writing, then try again", **facts)
    if error.errno in _REFUSED_ERRNO:
        return InvalidRequestError(_REFUSED_ERRNO[error.errno], remedy="correct the path, or choose another", **facts)
    return UnavailableError("the file system did not answer", remedy="check the disk, then try again", **facts)


def _classified_generic(error: Exception, facts: dict[str, object]) -> MemwalError:
    if isinstance(error, NativePanicError):
        return InvalidRequestError(
            "the store's client gave up on this request",
            remedy="correct the storage options: an endpoint without http://, or a key or region with a blank or a "
            "line break, is none; if they are right, report it",
            **facts,
        )
    # obstore has one class for everything else; the HTTP status in its text tells the rest apart.
    match = _STATUS.search(str(error))
    status = int(match.group(1)) if match else None
    if status is not None:
        facts["status"] = status
    if _BAD_RANGE.search(str(error)):
        return InvalidRequestError("the object ends before this range", remedy="ask for a range within it", **facts)
    if _WRONG_REGION.search(str(error)):
        return StoreRefusedError("the bucket is in another region", remedy="set the storage option aws_region", **facts)
    if status == _NOT_IMPLEMENTED_STATUS:
        return _unsupported(facts)
    is_transient = status in _TRANSIENT_STATUS or _TIMED_OUT in str(error)
    if status is not None and 300 <= status < 500 and not is_transient:
        return StoreRefusedError(
            "the store refused the request", remedy="check bucket, region, endpoint and credentials", **facts
        )
    return UnavailableError("the store did not answer", remedy="check that it is reachable, then try again", **facts)


def _unsupported(facts: dict[str, object]) -> InvalidRequestError:
    return InvalidRequestError(
        "the store does not support this request",
        remedy="use a store with conditional writes (If-None-Match, If-Match)",
        **facts,
    )
