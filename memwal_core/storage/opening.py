"""Opening a store by its address."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
from obstore.store import ObjectStore as Backend

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError
from memwal_core.extras import extras_named
from memwal_core.native.threads import require_threads
from memwal_core.native.waiting import TIMEOUT_OPTION
from memwal_core.redaction import remember_secrets
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import StorageSettings
from memwal_core.storage.address import Address, parse_address
from memwal_core.storage.local import LocalStore
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.storage.remote import RemoteStore
from memwal_core.storage.retrying import Retrier, request_timeout_s
from memwal_core.storage.translate import describe

# Options of the HTTP client, which obstore takes separately from the store's own.
_CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_excludes", "timeout", "user_agent",
})  # fmt: skip
# Options that only Lance understands; obstore refuses them.
_LANCE_OPTIONS = frozenset({
    "client_max_retries", "client_retry_timeout", "download_retry_count", "refresh_offset_millis",
    "request_timeout", "s3_express",
})  # fmt: skip

_CONNECT_MS = 5000

# obstore does not retry, but for parts of an upload: only our own code knows which requests may be repeated.
_NO_RETRIES: dict[str, Any] = {"max_retries": 0, "retry_timeout": timedelta(minutes=3)}
_SHORTEST_WAIT_S = 0.001


def open_store(
    uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    settings: StorageSettings | None = None,
    clock: Clock | None = None,
    rng: Rng | None = None,
) -> ObjectStore:
    """Open a store; nothing is read or written yet, and the root need not exist.

    Args:
        uri: A path, or an address with ``file``, ``memory``, ``s3``, ``gs`` or ``az`` as scheme.
            Each ``memory://`` store is new and empty.
        storage_options: Options under pylance's names (``aws_endpoint``, ``aws_region``, ...); they
            win over the environment. S3 credentials otherwise come from boto3's chain.
        settings: Durability and retries.
        clock: Waits between attempts.
        rng: Jitter and names of temporary files.

    Raises:
        InvalidRequestError: Address or options cannot be used, credentials are missing, or Lance's threads are too
            few (``native.threads``).
    """
    require_threads()
    address = parse_address(uri)
    settings = settings if settings is not None else StorageSettings()
    rng = rng if rng is not None else system_rng()
    options = _texts(storage_options)
    remember_secrets(options)
    clock = clock if clock is not None else SystemClock()
    if address.kind is StoreKind.LOCAL:
        return LocalStore(address, fsync=settings.fsync, rng=rng, clock=clock)
    retrier = Retrier(settings, clock, rng)
    if address.kind is StoreKind.MEMORY:
        memory = MemoryStore()
        return RemoteStore(address, memory, lambda: memory, lambda: MappingProxyType({}), retrier)
    limits = _limits(settings)
    if address.kind is StoreKind.S3:
        # boto3 takes a fifth of a second to import, which processes that need no S3 do not spend.
        with extras_named():
            from memwal_core.storage.s3_access import resolve_s3_access  # noqa: PLC0415

        access = resolve_s3_access(options, request_timeout_s(settings))
        make = partial(_bucket, address, S3Store, {**limits, **access.options}, credential_provider=access.provider)
        uploader = cache(partial(make, retry_config=_retries_of_parts(settings)))
        return RemoteStore(address, make(), uploader, lambda: {**limits, **access.pylance_options()}, retrier)
    options = {**limits, **options}
    make = partial(_bucket, address, GCSStore if address.kind is StoreKind.GCS else AzureStore, options)
    uploader = cache(partial(make, retry_config=_retries_of_parts(settings)))
    return RemoteStore(address, make(), uploader, lambda: MappingProxyType(options), retrier)


def _texts(storage_options: Mapping[str, str] | None) -> dict[str, str]:
    options = {} if storage_options is None else storage_options
    if not isinstance(options, Mapping):
        raise InvalidRequestError(
            "the storage options are no mapping", remedy='pass {"name": "text", ...}', found=type(options).__name__
        )
    wrong = [f"{name} ({type(value).__name__})" for name, value in options.items() if not _is_text_pair(name, value)]
    if wrong:  # Without the values: they may be secrets.
        raise InvalidRequestError(
            "storage options have names or values that are no texts",
            remedy='pass texts, as in {"allow_http": "true"}; leave out what is None',
            options=wrong,
        )
    return dict(options)


def _is_text_pair(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, str)


def _limits(settings: StorageSettings) -> dict[str, str]:
    """Return the options that end requests of obstore and of Lance in time; those of the caller win."""
    request_ms = round(request_timeout_s(settings) * 1000)
    return {
        "timeout": f"{request_ms}ms",
        "connect_timeout": f"{min(request_ms, _CONNECT_MS)}ms",
        TIMEOUT_OPTION: str(math.ceil(settings.read_timeout_s)),
    }


def _retries_of_parts(settings: StorageSettings) -> dict[str, Any]:
    """Return what ``Retrier`` does with other requests; parts may be repeated, and are too much to begin anew."""
    wait_s = max(settings.retry_wait_s, _SHORTEST_WAIT_S)
    wait_max_s = max(settings.retry_wait_max_s, wait_s)
    return {
        "max_retries": settings.max_attempts - 1,
        "retry_timeout": timedelta(seconds=settings.read_timeout_s),
        "backoff": {
            "init_backoff": timedelta(seconds=wait_s),
            "max_backoff": timedelta(seconds=wait_max_s),
            "base": 2,
        },
    }


def _bucket(address: Address, make: Any, options: Mapping[str, str], **more: Any) -> Backend:  # noqa: ANN401
    """Open a backend; ``more`` are further arguments of it, ``retry_config`` among them if it may retry."""
    client = {name: _client_value(value) for name, value in options.items() if name in _CLIENT_OPTIONS}
    config = {
        name: value for name, value in options.items() if name not in _CLIENT_OPTIONS and name not in _LANCE_OPTIONS
    }
    arguments = {"retry_config": _NO_RETRIES} | {name: value for name, value in more.items() if value is not None}
    try:
        store: Backend = make(
            address.bucket,
            prefix=address.prefix or None,
            config=config,
            client_options=client,
            **arguments,
        )
    except (BaseError, ValueError, TypeError) as error:
        # The library's text may quote an option's value, which may be a secret.
        is_safe = not any(value in str(error) for value in options.values() if value)
        raise InvalidRequestError(
            "the store cannot be opened with these options",
            remedy="correct the names and values of the storage options",
            store=address.uri,
            options=sorted(options),
            reason=describe(error) if is_safe else type(error).__name__,
        ) from (error if is_safe else None)
    return store


def _client_value(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in {"true", "false"} else value
