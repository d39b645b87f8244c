"""The status page's tables as Airflow knows them: registered ones, opened with the options of their connections."""

from __future__ import annotations

from memwal_core.airflow.tasks.tables import open_table
from memwal_core.registry import RegisteredTable, Registry, load_registry
from memwal_core.table import Table


class RegistryTables:
    """The tables of the registry that the environment names, read anew for each request."""

    def registry(self) -> Registry | None:
        """Return the registry; None if none is configured.

        Raises:
            InvalidRequestError: The registry is not understood.
        """
        return load_registry()

    def open(self, table: RegisteredTable) -> Table:
        """Open a table with the options of its connection.

        Raises:
            InvalidRequestError: Connection, settings or options cannot be used.
            ObjectNotFoundError: There is no table at the address.
        """
        return open_table(table)
