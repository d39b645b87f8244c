"""The status page's tables as Airflow knows them: registered ones, opened with the options of their connections."""

from __future__ import annotations

from memwal_core.airflow.tasks.tables import open_table
from memwal_core.registry import RegisteredTable, load_registry
from memwal_core.table import Table


class RegisteredSource:
    """The tables of the registry that the environment names, read anew for each request."""

    def tables(self) -> tuple[RegisteredTable, ...] | None:
        """Return the registered tables that are not excluded; None if no registry is configured.

        Raises:
            InvalidRequestError: The registry is not understood.
        """
        registry = load_registry()
        return registry.maintained if registry is not None else None

    def open(self, table: RegisteredTable) -> Table:
        """Open a table with the options of its connection.

        Raises:
            InvalidRequestError: Connection, settings or options cannot be used.
            ObjectNotFoundError: There is no table at the address.
        """
        return open_table(table)
