"""Where the page gets its tables from."""

from __future__ import annotations

from typing import Protocol

from memwal_core.registry import RegisteredTable
from memwal_core.table import Table


class PageSource(Protocol):
    """The tables that a page may show."""

    def tables(self) -> tuple[RegisteredTable, ...] | None:
        """Return the registered tables; None if no registry is configured."""
        ...

    def open(self, table: RegisteredTable) -> Table:
        """Open one of them. The page only reads."""
        ...
