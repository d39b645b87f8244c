from __future__ import annotations

import errno
import os

import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from memwal_core.errors import (
    InvalidRequestError,
    MemwalError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.storage.translate import store_errors_translated

HTTP = "Generic S3 error: Error performing PUT http://host/b/k in 1ms - Server returned non-2xx status code: {}: "


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("gone"), ObjectNotFoundError),
        (_os_error(errno.ENOENT), ObjectNotFoundError),
        (_os_error(errno.ENOTDIR), InvalidRequestError),
        (FileNotFoundError("Object not found: <Code>NoSuchBucket</Code>"), InvalidRequestError),
        (FileExistsError("there"), ObjectExistsError),
        (AlreadyExistsError("conflict"), UnavailableError),
        (PreconditionError("changed"), UnavailableError),
        (PermissionDeniedError("no"), StoreRefusedError),
        (UnauthenticatedError("who"), StoreRefusedError),
        (NotSupportedError("no"), InvalidRequestError),
        (NotImplementedError("no"), InvalidRequestError),
        (ValueError("path"), InvalidRequestError),
        (_os_error(errno.EACCES), StoreRefusedError),
        (_os_error(errno.EROFS), StoreRefusedError),
        (_os_error(errno.ENAMETOOLONG), InvalidRequestError),
        (_os_error(errno.ENOSPC), UnavailableError),
        (_os_error(errno.EIO), UnavailableError),
        (GenericError(HTTP.format("400 Bad Request")), StoreRefusedError),
        (GenericError(HTTP.format("400 Bad Request") + "<Code>RequestTimeout</Code>"), UnavailableError),
        (GenericError(HTTP.format("501 Not Implemented")), InvalidRequestError),
        (
            GenericError("Generic S3 error: DeleteObjects request failed for key a: No (code: AccessDenied)"),
            StoreRefusedError,
        ),
        (
            GenericError("Generic S3 error: DeleteObjects request failed for key a: No (code: SlowDown)"),
            UnavailableError,
        ),
        (GenericError(HTTP.format("429 Too Many Requests")), UnavailableError),
        (GenericError(HTTP.format("503 Service Unavailable")), UnavailableError),
        (GenericError("Generic S3 error: HTTP error: error sending request"), UnavailableError),
    ],
)
def test_error_of_a_library_gets_the_class_that_says_what_to_do(error: Exception, kind: type[MemwalError]) -> None:
    with pytest.raises(MemwalError) as raised, store_errors_translated("put", "a/b", "s3://bucket"):
        raise error

    assert type(raised.value) is kind
    assert raised.value.__cause__ is error
    assert {key: raised.value.facts[key] for key in ("operation", "path", "store")} == {
        "operation": "put",
        "path": "a/b",
        "store": "s3://bucket",
    }


def test_long_address_does_not_crowd_out_what_the_store_said() -> None:
    """The path of any file of a region left no room for it."""
    path = "a-table/_mem_wal/" + "long/" * 100
    said = "Server returned non-2xx status code: 400 Bad Request: <Error><Code>ExpiredToken</Code></Error>"
    asked = f"Error performing GET https://host:9000/bucket/{path}?list-type=2 in 4.29ms, after 1 retries, "

    with pytest.raises(StoreRefusedError) as raised, store_errors_translated("get", path, "s3://bucket"):
        raise GenericError(f"Generic S3 error: {asked}max_retries: 1, retry_timeout: 3s  - {said}")

    assert raised.value.facts["reason"] == f"Generic S3 error: Error performing GET https://host:9000 - {said}"


def test_only_a_conditional_write_finds_its_object_there() -> None:
    with pytest.raises(ObjectExistsError), store_errors_translated("put_if_absent", "a", "s3://b"):
        raise AlreadyExistsError("there")


@pytest.mark.parametrize(
    "text",
    [
        "Error performing GET https://acc.host/c/k?sv=1&sig=hunter2 in 1ms",
        "Error performing GET https://user:hunter2@host/c/k in 1ms",
        "first line\nrequest: https://host/k?X-Amz-Signature=hunter2",
    ],
)
def test_signature_or_password_in_an_error_does_not_travel_along(text: str) -> None:
    with pytest.raises(UnavailableError) as raised, store_errors_translated("get", "a", "az://c"):
        raise GenericError(text)

    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_own_errors_pass_unchanged() -> None:
    own = UnavailableError("x", remedy="y")

    with pytest.raises(UnavailableError) as raised, store_errors_translated("get", "a", "s3://b"):
        raise own

    assert raised.value is own


def test_programming_errors_pass_unchanged() -> None:
    with pytest.raises(TypeError), store_errors_translated("get", "a", "s3://b"):
        raise TypeError("wrong argument")
