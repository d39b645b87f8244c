"""What Airflow's connections of type ``lance`` say: the address of an object store and its options."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook, Connection
from airflow.sdk.log import mask_secret

from memwal_core.errors import InvalidRequestError, UnavailableError

CONNECTION_TYPE = "lance"

_ACCESS_KEY = "aws_access_key_id"
_SECRET_KEY = "aws_secret_access_key"  # noqa: S105 - the option's name
# Airflow masks extra fields by its own list of names, which lacks the keys of Azure.
_SECRET_NAMES = ("key", "secret", "token", "password", "credential", "sas", "bearer")


@dataclass(frozen=True, slots=True)
class StorageConnection:
    """An object store.

    Attributes:
        address: What the form's test button looks at; may be empty.
        options: For pylance and for our stores, secrets among them.
    """

    address: str
    options: Mapping[str, str] = field(repr=False)


def read_connection(name: str) -> StorageConnection:
    """Read a connection and let Airflow mask its secrets in logs from now on.

    Args:
        name: The connection. Login and password are the access key of S3 and its secret; empty extra fields, which
            Airflow's form sends, are left out.

    Raises:
        InvalidRequestError: There is no such connection, its variable is not understood, it is of another type, its
            extra fields are no JSON object, or an option is no plain value.
        UnavailableError: What keeps Airflow's secrets fails. Try again.
    """
    connection = find_connection(name, CONNECTION_TYPE)
    if connection.conn_type != CONNECTION_TYPE:
        raise InvalidRequestError(
            "this connection is not of type lance",
            remedy="name a connection of type lance",
            connection=name,
            found=connection.conn_type,
        )
    options = {option: _plain(name, option, value) for option, value in _extra(name, connection).items()}
    named = {_ACCESS_KEY: connection.login, _SECRET_KEY: connection.password}
    options |= {option: value for option, value in named.items() if value}
    given = {option: value for option, value in options.items() if value}
    for option, value in given.items():
        if any(part in option.lower() for part in _SECRET_NAMES):
            mask_secret(value)
    return StorageConnection(connection.host or "", given)


def find_connection(name: str, kind: str) -> Connection:
    """Return a connection, or say why Airflow does not find it, which is also its word for one that it cannot read.

    Args:
        name: The connection.
        kind: Its type, for the error.

    Raises:
        InvalidRequestError: There is no such connection, it may not be read, or its variable is not understood.
        UnavailableError: What keeps Airflow's secrets fails. Try again.
    """
    try:
        return BaseHook.get_connection(name)
    except PermissionError as error:
        raise InvalidRequestError(
            f"Airflow denies the connection {name}",
            remedy="let these DAGs use it, or correct what names it",
            connection=name,
        ) from error
    except AirflowNotFoundException:
        pass
    variable = f"AIRFLOW_CONN_{name.upper()}"
    if variable in os.environ:
        raise InvalidRequestError(
            f"the variable {variable} is not understood",
            remedy=f'write the fields of a connection as JSON, like {{"conn_type": "{kind}", "extra": {{}}}}',
            connection=name,
        )
    if failing := _failing_backend(name):
        raise UnavailableError(
            "a backend of Airflow's secrets fails",
            remedy="see whether it answers; it may have the connection",
            connection=name,
            backend=failing,
        )
    try:
        return BaseHook.get_connection(name)  # All of them answer now.
    except AirflowNotFoundException as error:
        raise InvalidRequestError(
            f"the connection {name} is not defined",
            remedy=f"define it in Airflow, as type {kind}, or correct what names it; if it is defined, see whether "
            "what keeps Airflow's secrets answers, and clear the task",
            connection=name,
        ) from error


def _failing_backend(name: str) -> str | None:
    """Return which backend of Airflow's secrets fails, and how: Airflow goes on to the next one without a word."""
    with suppress(ImportError):  # These are not among what Airflow promises to keep.
        from airflow.sdk.execution_time import supervisor, task_runner
        from airflow.sdk.execution_time.comms import GetConnection

        asked: dict[str, Callable[[], object]] = {
            type(backend).__name__: partial(backend.get_connection, conn_id=name)
            for backend in supervisor.ensure_secrets_backend_loaded()
        }
        if (server := getattr(task_runner, "SUPERVISOR_COMMS", None)) is not None:
            # Its own backend takes all its failures for connections that are not defined.
            asked["the API server"] = partial(server.send, GetConnection(conn_id=name))
        for backend, ask in asked.items():
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - of somebody else's code
                return f"{backend}: {type(error).__name__}"
    return None


def _extra(name: str, connection: Connection) -> Mapping[str, object]:
    try:
        found = json.loads(connection.extra or "null")
    except ValueError:
        found = connection.extra
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidRequestError(
            "the extra fields of the connection are no JSON object",
            remedy='write them like {"aws_region": "us-east-1"}',
            connection=name,
        )
    # Airflow masks values while it parses them.
    return connection.extra_dejson


def _plain(name: str, option: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise InvalidRequestError(
            "an option of the object store must be a text or a number",
            remedy="correct the extra fields of the connection",
            connection=name,
            option=option,
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
