"""The one place where pylance's errors become errors of this package.

pylance raises OSError or ValueError for almost everything, so its text decides. The patterns are
pinned by tests that provoke each error; no other module may match foreign texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    InternalError,
    InvalidRequestError,
    MemwalError,
    MissingFileError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.native.panics import NativePanicError, panics_raised
from memwal_core.native.system_errors import is_of_system
from memwal_core.redaction import harmless, redact
from memwal_core.text import without_request

_UNUSABLE = r"\(os error (?:20|36)\)"

# First match wins: what must not be mistaken for anything else comes first.
_KINDS: tuple[tuple[re.Pattern[str], type[MemwalError], str, str], ...] = (
    (
        re.compile(r"Commit result for version \d+ is unknown"),
        CommitUnknownError,
        "the outcome of the commit is unknown",
        "read the table's progress before trying again",
    ),
    (
        re.compile(
            r"Too many concurrent writers|[Rr]etryable commit conflict|Incompatible transaction|Commit conflict|"
            r"preempted by concurrent transaction"
        ),
        ConflictError,
        "another commit changed the table first",
        "read the table again and repeat the work",
    ),
    (
        re.compile("NoSuchBucket"),
        InvalidRequestError,
        "the bucket does not exist",
        "create it, or correct the address",
    ),
    (
        re.compile(r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|403 Forbidden|401 Unauthorized"),
        StoreRefusedError,
        "the store refused the request",
        "check bucket, credentials and storage options",
    ),
    (
        re.compile(r"\(os error (?:1|13|30)\)"),
        StoreRefusedError,
        "the file system refused the request",
        "check whether this process may use the path, and whether the disk is read-only",
    ),
    (
        # Files where a directory would be; a write finds no place where even its directories cannot be made.
        re.compile(rf"{_UNUSABLE}|^LanceError\(IO\): No such file or directory"),
        InvalidRequestError,
        "the file system refused the request",
        "check the path, and whether this process may use it",
    ),
    (
        re.compile(r"\(os error (?:28|122)\)"),
        UnavailableError,
        "the disk is full",
        "free space, then try again",
    ),
    (
        re.compile(r"\(os error (?:23|24)\)|Os \{ code: 2[34],"),
        UnavailableError,
        "too many files are open",
        "let the process open more of them (ulimit -n), then try again",
    ),
    (
        # Before what follows: a file that ends too early comes as a generic error of its store, and what a decoder
        # meets while rows stream as wrong input, where a filter that fails on a row names the filter.
        re.compile(
            r"failed to fill whole buffer|failed to decode Protobuf message|does not appear to be a Lance file|"
            r"file size is too small|Invalid range \S+ for object of size \d+|Encountered corrupt file|"
            r"Wrapped error: task \d+ panicked|Invalid constant layout|decompression error|Flat buffer has \d+ bytes|"
            r"Struct child array length|Invalid argument error: (?:Max offset|Invalid scalar value buffer)|"
            # Of footers and pages. No version of Lance has two digits on a side.
            r"Unknown Lance storage version: (?:\d{2,}\.|\d\.\d{2,})|Global buffer \d+ (?:position|range)|"
            r"Tail read position|column metadata range|columns of differing lengths|references parent id|"
            r"Column \d+ (?:page \d+ )?(?:has \d+ )?buffer|Missing \w+ encoding|missing its (?:nested )?encoding|"
            r"Constant expects|greater than chunk items|corrupt binary page|terminated before end of stream"
        ),
        CorruptionError,
        "a file cannot be decoded",
        "run `memwal doctor --deep`, which names files that are damaged",
    ),
    (
        re.compile(r"Generic \w+ error|HTTP error|error sending request|operation timed out"),
        UnavailableError,
        "the store did not answer",
        "back off and retry",
    ),
    (
        re.compile(r"Dataset already exists"),
        InvalidRequestError,
        "there is a table at this address already",
        "open it, or choose another address",
    ),
    (
        # Not those of manifests, which are missing where there is no table.
        re.compile(r"Not found: \S*/(?:data|_deletions|_indices)/"),
        MissingFileError,
        "a file of the table is missing",
        "read again, for it may have been collected meanwhile; if it stays missing, run `memwal doctor`",
    ),
    (
        re.compile(r"was not found|Not found: |does not exist: "),
        ObjectNotFoundError,
        "the table, version or file does not exist",
        "check address and version; `memwal tables DIRECTORY` finds tables",
    ),
    (
        re.compile(
            r"Invalid user input|Append with different schema|Ambiguous merge inserts|Schema error|unsupported type"
        ),
        InvalidRequestError,
        "Lance refused the request",
        "correct what the reason names",
    ),
)
# Lance appends where in its sources an error arose, which says nothing to the reader of ours.
_SOURCE_PLACE = re.compile(r",? ?(?:location: )?[^ ,]*\.rs:\d+:\d+")
_MAX_REASON_LENGTH = 400


@contextmanager
def translated(operation: str, table: str, **facts: object) -> Iterator[None]:
    """Turn pylance's errors into this package's; ``operation`` and ``table`` become facts of the error."""
    try:
        with panics_raised():
            yield
    except (OSError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        translation = classified(error, {"operation": operation, "table": table, **facts})
        raise translation from harmless(error)


_DOUBT = re.compile(r"Commit result for version (\d+) is unknown:[^:]*:\s*")


def without_doubt(error: MemwalError, *, asked_version: int) -> MemwalError:
    """Return what kept a commit from being made, where pylance doubts a version that it did not ask a catalog for.

    ``asked_version`` is the last one that it asked for; 0 if it asked for none.
    """
    cause = error.__cause__
    doubt = _DOUBT.search(str(cause)) if isinstance(error, CommitUnknownError) else None
    if doubt is None or int(doubt[1]) <= asked_version:
        return error
    return classified(OSError(_DOUBT.sub("", str(cause))), error.facts)


_UNANSWERED = re.compile(r"HTTP error|error sending request|operation timed out|[Cc]onnection")
_REFUSED_BY_STORE = re.compile(r"status code: (?!404|416)\d{3}")
"""Overload, a refusal, an error of the store; what is missing, or ends too early, is the file's fault."""
_PANIC = "PanicException"


@contextmanager
def decoding(uri: str) -> Iterator[None]:
    """Turn whatever Lance and Arrow raise about the bytes at an address into one error; panics included.

    Only for files that were just listed: an error that is neither the store's silence nor its refusal then says that
    their bytes are wrong.

    Raises:
        CorruptionError: The bytes cannot be decoded; ``facts["reason"]`` says why.
        UnavailableError: The store did not answer.
        StoreRefusedError: It refused to.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        text = str(error)
        if _REFUSED_BY_STORE.search(text):
            raise classified(OSError(text), {"uri": uri}) from None
        reason = _reason(text)
        if _UNANSWERED.search(text) or is_of_system(error):
            raise UnavailableError(
                "the store did not answer", remedy="back off and retry", uri=uri, reason=reason
            ) from None
        raise CorruptionError(
            "Lance cannot decode a file", remedy="run `memwal repair`", uri=uri, reason=reason
        ) from None


def classified(error: Exception, facts: dict[str, object]) -> MemwalError:
    """Return the error of this package that an error of pylance stands for."""
    text = str(error)
    facts = {**facts, "reason": _reason(text)}
    for pattern, kind, what, remedy in _KINDS:
        if pattern.search(text):
            return kind(what, remedy=remedy, **facts)
    if isinstance(error, ValueError | OverflowError):
        return InvalidRequestError("Lance refused the request", remedy="correct what the reason names", **facts)
    if isinstance(error, OSError):
        return UnavailableError("Lance could not read or write the table", remedy="back off and retry", **facts)
    if isinstance(error, NativePanicError):
        remedy = "run `memwal doctor --deep`, which names files that are damaged; report this with its facts if none is"
        return InternalError("Lance panicked", remedy=remedy, **facts)
    return InternalError("Lance failed with an unexpected error", remedy="report this with its facts", **facts)


def _reason(text: str) -> str:
    return redact(without_request(_SOURCE_PLACE.sub("", text)))[:_MAX_REASON_LENGTH]
