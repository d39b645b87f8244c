"""The connection type ``lance``: an object store with its options, secrets among them."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseHook

from memwal_core.errors import InvalidRequestError, MemwalError
from memwal_core.settings import StorageSettings
from memwal_core.storage import open_store

_ACCESS_KEY = "aws_access_key_id"
_SECRET_KEY = "aws_secret_access_key"  # noqa: S105 - the option's name


class LanceHook(BaseHook):
    """Reads a connection of type ``lance``.

    Host is the address that the test button looks at, login and password are the access key of S3
    and its secret, and the extra fields are options of the object store under pylance's names.
    Airflow masks the password, and extra fields whose name says that they are secret, in logs.

    Args:
        lance_conn_id: The connection.
    """

    conn_name_attr = "lance_conn_id"
    default_conn_name = "lance_default"
    conn_type = "lance"
    hook_name = "Lance"

    _BEHAVIOUR: ClassVar[dict[str, Any]] = {
        "hidden_fields": ["port", "schema"],
        "relabeling": {"host": "Address", "login": "Access key (S3)", "password": "Secret key (S3)"},
        "placeholders": {
            "host": "s3://bucket/prefix",
            "extra": '{"aws_endpoint": "https://objects.example", "aws_region": "us-east-1"}',
        },
    }

    def __init__(self, lance_conn_id: str = default_conn_name) -> None:
        """Keep the name; nothing is read."""
        super().__init__()
        self.lance_conn_id = lance_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow's connection form shows the fields."""
        return cls._BEHAVIOUR

    def storage_options(self) -> dict[str, str]:
        """Return the options for pylance and for our stores.

        Raises:
            InvalidRequestError: The connection is of another type, or an option is no plain value.
        """
        return self._read()[1]

    def get_conn(self) -> dict[str, str]:
        """Return ``storage_options``: a store has no open connection.

        Raises:
            InvalidRequestError: As ``storage_options``.
        """
        return self.storage_options()

    def test_connection(self) -> tuple[bool, str]:
        """List what is at the address; what the form's test button does."""
        try:
            address, options = self._read()
            if not address:
                return False, "no address to look at: give one, for example s3://bucket/prefix"
            store = open_store(address, storage_options=options, settings=StorageSettings(max_attempts=1))
            found = store.list_directories("")
        except MemwalError as error:
            return False, str(error)
        return True, f"{len(found)} directories at {address}"

    def _read(self) -> tuple[str, dict[str, str]]:
        connection = self.get_connection(self.lance_conn_id)
        if connection.conn_type != self.conn_type:
            raise InvalidRequestError(
                "this connection is not of type lance",
                remedy="name a connection of type lance",
                connection=self.lance_conn_id,
                found=connection.conn_type,
            )
        options: dict[str, str] = {}
        for name, value in connection.extra_dejson.items():
            if not isinstance(value, str | int | float):
                raise InvalidRequestError(
                    "an option of the object store must be a text or a number",
                    remedy="correct the extra fields of the connection",
                    connection=self.lance_conn_id,
                    option=name,
                )
            options[name] = str(value).lower() if isinstance(value, bool) else str(value)
        named = {_ACCESS_KEY: connection.login, _SECRET_KEY: connection.password}
        return connection.host or "", {**options, **{name: value for name, value in named.items() if value}}
