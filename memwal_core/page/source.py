"""Where the page gets its tables from."""

from __future__ import annotations

from typing import Protocol

from memwal_core.admin import TableAdmin
from memwal_core.tasks.registry import RegisteredTable, load_registry
from memwal_core.tasks.targets import as_target, open_target


class PageSource(Protocol):
    """The tables that a page may show."""

    def tables(self) -> tuple[RegisteredTable, ...] | None:
        """Return the registered tables; None if no registry is configured."""
        ...

    def open(self, table: RegisteredTable) -> TableAdmin:
        """Open one of them. The page only reads."""
        ...


class RegisteredSource:
    """The tables of the registry that the environment names, read anew for each request."""

    def tables(self) -> tuple[RegisteredTable, ...] | None:
        """Return the registered tables that are not excluded; None if no registry is configured.

        Raises:
            InvalidRequestError: The registry is not understood.
        """
        registry = load_registry()
        return registry.maintained if registry is not None else None

    def open(self, table: RegisteredTable) -> TableAdmin:
        """Open a table with the options of its connection.

        Raises:
            InvalidRequestError: Connection, settings or options cannot be used.
            ObjectNotFoundError: There is no table at the address.
        """
        return open_target(as_target(table))
