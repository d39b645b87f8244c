"""Which tables a run works on, and how they are opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from memwal_core.airflow.connections import read_connection
from memwal_core.errors import InvalidRequestError
from memwal_core.opening import open_here
from memwal_core.registry import RegisteredTable, Registry, load_registry, unregistered
from memwal_core.table import Table


class RunTarget(TypedDict):
    """One table, as tasks hand it to each other.

    Attributes:
        name: What people call it.
        uri: Path or address.
        connection: Airflow connection with its storage options; empty = none.
        storage_options: More of them, no secrets.
    """

    name: str
    uri: str
    connection: str
    storage_options: dict[str, str]


def choose_target(params: Mapping[str, object], registry: Registry | None = None) -> RunTarget:
    """Return the table that a form names.

    Args:
        params: Of the run: ``table``, and perhaps ``storage_connection`` and ``storage_options``.
        registry: The registered tables; read from where the environment says by default.

    Raises:
        InvalidRequestError: There is a registry, and the table is not in it or excluded.
    """
    found, connection = find_registered(params, registry), str(params.get("storage_connection") or "")
    options = params.get("storage_options") or {}
    assert isinstance(options, Mapping)  # noqa: S101 - the form's schema says so
    return {**as_target(found), "connection": connection or found.connection, "storage_options": dict(options)}


def find_registered(params: Mapping[str, object], registry: Registry | None = None) -> RegisteredTable:
    """Return what is registered about the table that a form names; arguments and errors as for ``choose_target``."""
    registry = registry if registry is not None else load_registry()
    asked = str(params["table"])
    return registry.find(asked) if registry is not None else unregistered(asked)


def choose_targets(
    params: Mapping[str, object], events: Iterable[Mapping[str, object]] = (), registry: Registry | None = None
) -> list[RunTarget]:
    """Return the table that a form names or, in a run that changed tables triggered, those tables.

    Args:
        params: Of the run; ``table`` may be empty.
        events: What earlier jobs said about the tables that they changed.
        registry: As for ``choose_target``.

    Raises:
        InvalidRequestError: No table is named at all, or one is not registered.
    """
    if params.get("table"):
        return [choose_target(params, registry)]
    seen: dict[str, RunTarget] = {}
    for event in events:
        named = {
            "table": event["table"],
            "storage_connection": event.get("connection"),
            "storage_options": event.get("storage_options"),
        }
        seen[str(event["table"])] = choose_target(named, registry)
    if not seen:
        raise InvalidRequestError(
            "no table is named", remedy="name one in the form; only runs that a change triggered know theirs"
        )
    return list(seen.values())


def as_target(table: RegisteredTable) -> RunTarget:
    """Return a registered table as tasks hand it to each other."""
    return RunTarget(name=table.name, uri=table.uri, connection=table.connection, storage_options={})


def open_target(target: RunTarget) -> Table:
    """Open a table with the options of its connection.

    Raises:
        InvalidRequestError: Connection, settings or options cannot be used.
        ObjectNotFoundError: There is no table at the address.
    """
    return open_here(target["uri"], storage_options(target))


def storage_options(target: RunTarget) -> dict[str, str]:
    """Return all storage options of a table, secrets among them.

    Raises:
        InvalidRequestError: The connection is of another type, or an option is no plain value.
    """
    from_connection = read_connection(target["connection"]).options if target["connection"] else {}
    return {**from_connection, **target["storage_options"]}
