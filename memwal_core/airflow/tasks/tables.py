"""Which tables a run works on, and how they are opened.

Tasks hand each other names only. Whoever may start a run may also change what its tasks have handed over, so each task
asks the registry what a name stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memwal_core.airflow.connections import read_connection
from memwal_core.errors import InvalidRequestError
from memwal_core.opening import open_here
from memwal_core.registry import RegisteredTable, require_registry
from memwal_core.table import Table


def find_table(name_or_uri: str) -> RegisteredTable:
    """Return what the registry says about a table.

    Raises:
        InvalidRequestError: There is no registry, or the table is not in it or excluded.
    """
    return require_registry().find(name_or_uri)


def named_tables(params: Mapping[str, object], events: Iterable[Mapping[str, object]] = ()) -> list[str]:
    """Return the name of the table in a form or, in a run that changed tables triggered, the names of those.

    Args:
        params: Of the run; ``table`` may be empty.
        events: What earlier jobs said about the tables that they changed; only ``table`` counts.

    Raises:
        InvalidRequestError: No table is named at all.
    """
    names = [str(params["table"])] if params.get("table") else [str(event["table"]) for event in events]
    if not names:
        raise InvalidRequestError(
            "no table is named", remedy="name one in the form; only runs that a change triggered know theirs"
        )
    return list(dict.fromkeys(names))


def open_table(table: RegisteredTable) -> Table:
    """Open a table with the options of its connection.

    Raises:
        InvalidRequestError: Connection, settings or options cannot be used.
        ObjectNotFoundError: There is no table at the address.
    """
    return open_here(table.uri, storage_options(table))


def storage_options(table: RegisteredTable) -> Mapping[str, str]:
    """Return the storage options of a table's connection, secrets among them.

    Raises:
        InvalidRequestError: The connection is of another type, or an option is no plain value.
    """
    return read_connection(table.connection).options if table.connection else {}
