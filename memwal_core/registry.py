"""Which tables are maintained: one TOML file, and what is not in it is refused."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memwal_core.errors import InvalidRequestError

REGISTRY_VARIABLE = "MAINTENANCE_TABLES"
"""Names the file. Not ``MEMWAL_``: what is installed is no setting of the library."""


class RegisteredTable(BaseModel):
    """One table that is maintained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$", description="What people call it; unique.")
    uri: str = Field(min_length=1, description="Path or address.")
    connection: str = Field(default="", description="Airflow connection of type lance for its object store; may be "
        "empty if the environment of the workers knows the credentials.")  # fmt: skip
    every_minutes: float = Field(default=10.0, gt=0, description="How often the cycle runs.")
    collect_garbage: bool = Field(default=False, description="Whether the cycle deletes; otherwise it only plans it.")
    remove_versions: bool = Field(default=False, description="Whether the cycle removes old table versions.")
    input_suites: tuple[str, ...] = Field(
        default=(), description="Files with expectation suites that every ingested batch has to meet."
    )


class Registry(BaseModel):
    """The registered tables.

    Attributes:
        tables: Maintained by schedule and by hand.
        include: Patterns of names and addresses that may be maintained by hand without an entry.
        exclude: Patterns of names and addresses that are maintained by nothing, entries included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tables: tuple[RegisteredTable, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def maintained(self) -> tuple[RegisteredTable, ...]:
        """Entries that no pattern excludes."""
        return tuple(table for table in self.tables if not self._is_excluded(table.name, table.uri))

    def find(self, name_or_uri: str) -> RegisteredTable:
        """Return the table of this name or address.

        Raises:
            InvalidRequestError: It is not registered, or excluded.
        """
        found = next((table for table in self.tables if name_or_uri in (table.name, table.uri)), None)
        names = (name_or_uri,) if found is None else (found.name, found.uri)
        if self._is_excluded(*names):
            raise InvalidRequestError(
                "this table is excluded from maintenance",
                remedy="take it out of `exclude` in the registry of tables, if that is meant",
                table=name_or_uri,
                exclude=list(self.exclude),
            )
        if found is not None:
            return found
        if _matches(self.include, name_or_uri):
            return unregistered(name_or_uri)
        raise InvalidRequestError(
            "this table is not registered",
            remedy="add it to the registry of tables, or correct the name",
            table=name_or_uri,
            known=[table.name for table in self.maintained],
        )

    def _is_excluded(self, *names: str) -> bool:
        return any(_matches(self.exclude, name) for name in names)


def unregistered(uri: str, connection: str = "") -> RegisteredTable:
    """Return what is known of a table without an entry."""
    # Not validated: an address is no name, and nobody refers to it by one.
    return RegisteredTable.model_construct(
        name=uri,
        uri=uri,
        connection=connection,
        every_minutes=10.0,
        collect_garbage=False,
        remove_versions=False,
    )


def load_registry(environment: Mapping[str, str] | None = None) -> Registry | None:
    """Read the registry that the environment names.

    Args:
        environment: Variables; those of the process by default.

    Returns:
        None if no registry is configured: then every table may be maintained by hand, and none is by schedule.

    Raises:
        InvalidRequestError: The file cannot be read, or says something that is not understood.
    """
    path = (os.environ if environment is None else environment).get(REGISTRY_VARIABLE)
    if not path:
        return None
    try:
        return parse_registry(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InvalidRequestError(
            "the registry of tables cannot be read",
            remedy=f"correct {REGISTRY_VARIABLE}, or the file's rights",
            path=path,
            problem=str(error),
        ) from error


def parse_registry(text: str, path: str) -> Registry:
    """Read a registry.

    Args:
        text: TOML.
        path: Where it is from, for the error.

    Raises:
        InvalidRequestError: It says something that is not understood, or names a table twice.
    """
    try:
        registry = Registry.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        wrong = _wrong(path, f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
        raise wrong from error
    except tomllib.TOMLDecodeError as error:
        wrong = _wrong(path, str(error))
        raise wrong from error
    for attribute in ("name", "uri"):
        values = [getattr(table, attribute) for table in registry.tables]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            wrong = _wrong(path, f"{attribute} given twice: {', '.join(twice)}")
            raise wrong
    return registry


def _wrong(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the registry of tables is not understood",
        remedy="correct the file; docs/operating.md describes it",
        path=path,
        problem=problem,
    )


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
