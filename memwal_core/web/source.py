"""Where the page gets its tables from."""

from __future__ import annotations

from typing import Protocol

from memwal_core.registry import RegisteredTable, Registry
from memwal_core.table import Table


class PageSource(Protocol):
    """The tables that a page may show."""

    def registry(self) -> Registry | None:
        """Return the registry; None if none is configured."""
        ...

    def open(self, table: RegisteredTable) -> Table:
        """Open one of them. The page only reads."""
        ...
