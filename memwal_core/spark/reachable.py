"""What executors can reach."""

from __future__ import annotations

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.storage import StoreKind


def require_reachable(table: BaseTable) -> None:
    """Return if other processes can open the table by its address.

    Raises:
        InvalidRequestError: The table lives in this process's memory.
    """
    if table.store.kind is StoreKind.MEMORY:
        raise InvalidRequestError(
            "executors cannot reach a table in the memory of another process",
            remedy="use a path or an object store that all executors reach",
            table=table.uri,
        )
