"""The hook of connections of type ``lance``: an object store with its options, secrets among them."""

from __future__ import annotations

from airflow.sdk import BaseHook

from memwal_core.airflow.connections import CONNECTION_TYPE, StorageConnection, read_connection
from memwal_core.errors import MemwalError
from memwal_core.settings import StorageSettings
from memwal_core.storage import open_store
from memwal_core.text import show_count


class LanceHook(BaseHook):
    """Reads a connection of type ``lance``; ``get_provider_info`` describes its form.

    Host is the address that the test button looks at, login and password are the access key of S3
    and its secret, and the extra fields are options of the object store under pylance's names.
    Values of all of them that may be secret are masked in logs.
    """

    conn_name_attr = "lance_conn_id"
    default_conn_name = "lance_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Lance"

    def __init__(self, lance_conn_id: str = default_conn_name) -> None:
        """Keep the name; nothing is read."""
        super().__init__()
        self.lance_conn_id = lance_conn_id

    def get_conn(self) -> StorageConnection:
        """Return address and options: a store has no open connection.

        Raises:
            InvalidRequestError: The connection is of another type, or an option is no plain value.
        """
        return read_connection(self.lance_conn_id)

    def storage_options(self) -> dict[str, str]:
        """Return the options for pylance and for our stores."""
        return dict(self.get_conn().options)

    def test_connection(self) -> tuple[bool, str]:
        """List what is at the address; what the form's test button does."""
        try:
            connection = self.get_conn()
            if not connection.address:
                return False, "no address to look at: give one, for example s3://bucket/prefix"
            settings = StorageSettings(max_attempts=1)
            store = open_store(connection.address, storage_options=dict(connection.options), settings=settings)
            found = store.list_directories("")
        except MemwalError as error:
            return False, str(error)
        return True, f"{show_count(len(found), 'directory')} at {connection.address}"
