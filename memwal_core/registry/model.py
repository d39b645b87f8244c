"""What the registry says: tables, and what runs on them may name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.jobs.quality.request import QualityGate
from memwal_core.registry.addresses import (
    NAME,
    canonical,
    canonical_from,
    canonical_pattern,
    is_matched,
    is_table_name,
    names_inside_of_table,
    places_of,
    require_line,
)
from memwal_core.settings.bounds import LONGEST_S
from memwal_core.text import most_like

FOLDER = "folder"
"""In the context of a validation: where relative paths begin; without it, where the process works."""


def _address(uri: str, info: ValidationInfo) -> str:
    try:
        return canonical_from((info.context or {}).get(FOLDER, ""), uri)
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error


Name = Annotated[str, Field(pattern=NAME)]
TableAddress = Annotated[str, Field(min_length=1), AfterValidator(_address)]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(canonical_pattern)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RegisteredTable(_Entry):
    """One table that is maintained."""

    name: Name = Field(description="What people call it; unique.")
    uri: TableAddress = Field(description="Path or address.")
    connection: str = Field(default="", description="Airflow connection of type lance for its object store; may be "
        "empty if the environment of the workers knows the credentials.")  # fmt: skip
    every_minutes: float = Field(default=10.0, gt=0, le=LONGEST_S / 60, description="How often the cycle runs.")
    collect_garbage: bool = Field(default=True, description="Whether the cycle deletes; otherwise it only plans it.")
    remove_versions: bool = Field(default=True, description="Whether the cycle removes old table versions.")
    input_suites: tuple[str, ...] = Field(
        default=(), description="Suites, by name, with the expectations that every ingested batch has to meet."
    )
    checks: QualityGate = Field(
        default=QualityGate.OFF,
        description="The quality gate of the cycle: `mandatory` holds back what fails, `advisory` reports it.",
    )
    suites: tuple[str, ...] = Field(
        default=(), description="Suites, by name, for rows that were flushed, before the cycle merges them."
    )


class BrokenEntry(_Entry):
    """The entry of a table that is not understood, or that contradicts another one."""

    name: str
    problem: str

    @property
    def why(self) -> str:
        """Say why nothing is done with the table."""
        return f"its entry in the registry is not understood: {self.problem}"


class IncludedTables(_Entry):
    """Tables that may be maintained by hand without an entry."""

    pattern: Pattern = Field(description="Of their addresses.")
    connection: str = Field(default="", description="Airflow connection of type lance for their object store.")


class RegisteredSource(_Entry):
    """Rows that may be ingested."""

    name: Name = Field(description="What runs call it.")
    address: str = Field(min_length=1, description="Directory or prefix of files; with the format table: a catalog "
        "or namespace, whose tables may be read.")  # fmt: skip
    format: SourceFormat = Field(description="What is there.")
    options: dict[str, str] = Field(default_factory=dict, description="Of Spark's reader.")
    tables: tuple[str, ...] = Field(default=(), description="Tables that it may be written to; empty: all.")

    @model_validator(mode="after")
    def _spelled(self, info: ValidationInfo) -> Self:
        if self.format is not SourceFormat.TABLE:
            object.__setattr__(self, "address", _address(self.address, info))
        return self


class Registry(_Entry):
    """The registered tables, and what runs may name.

    Attributes:
        tables: Maintained by schedule and by hand.
        include: Tables that may be maintained by hand without an entry.
        exclude: Patterns of names and addresses that are maintained by nothing, entries and what lies below included.
        sources: What may be ingested.
        suites_folder: Where suites are, which runs name by their path in it. They execute code, and none comes from
            elsewhere.
        docs: Name -> directory or address for the pages of checks.
        broken: Entries of tables that are left out, because they are not understood.
        single_user: Whether runs may also name addresses, files and reader options of their own. Whoever may start a
            run then reads and writes whatever the workers can.
    """

    tables: tuple[RegisteredTable, ...] = ()
    broken: tuple[BrokenEntry, ...] = ()
    include: tuple[IncludedTables, ...] = ()
    exclude: tuple[Pattern, ...] = ()
    sources: tuple[RegisteredSource, ...] = ()
    suites_folder: str = Field(default="suites", pattern=r"^[^\x00]*$")
    docs: Mapping[Name, TableAddress] = Field(default_factory=dict)
    single_user: bool = False

    @model_validator(mode="after")
    def _unique(self) -> Self:
        for what, values in {
            "name of tables": [table.name for table in self.tables],
            "uri": [table.uri for table in self.tables],
            "name of sources": [source.name for source in self.sources],
        }.items():
            if twice := sorted(value for value, count in Counter(values).items() if count > 1):
                raise ValueError(f"{what} given twice: {', '.join(twice)}")
        return self

    @cached_property
    def _entries(self) -> dict[str, RegisteredTable]:
        return {key: table for table in self.tables for key in (table.name, table.uri)}

    @cached_property
    def _broken_entries(self) -> dict[str, BrokenEntry]:
        return {each.name: each for each in reversed(self.broken)}

    @property
    def maintained(self) -> tuple[RegisteredTable, ...]:
        """Entries that no pattern excludes."""
        return tuple(table for table in self.tables if not self.excludes(table.name, table.uri))

    def choose(self, names: Sequence[str]) -> tuple[RegisteredTable, ...]:
        """Return the tables of some names or addresses, each once; without any, all that are maintained.

        Raises:
            InvalidRequestError: As ``find``.
        """
        found = map(self.find, names) if names else self.maintained
        return tuple({table.uri: table for table in found}.values())

    def excludes(self, name: str, uri: str) -> bool:
        """Return whether a pattern excludes a table by its name, its address, or a place that it lies in."""
        return is_matched(self.exclude, (name, *places_of(uri)))

    def find(self, name_or_uri: str) -> RegisteredTable:
        """Return the table of this name or address.

        Raises:
            InvalidRequestError: It is not registered, or excluded, or inside a table, or neither a name nor an address.
        """
        asked = canonical(require_line(name_or_uri))
        broken = self._broken_entries.get(name_or_uri)
        if broken is not None:
            raise InvalidRequestError(
                "the entry of this table is not understood",
                remedy="correct it in the registry of tables; docs/operating.md describes it",
                table=broken.name,
                problem=broken.problem,
            )
        found = self._entries.get(asked)
        if found is None and is_table_name(asked):
            # Not taken for a relative path: its exclusion could not be told.
            raise self._not_registered(name_or_uri)
        if self.excludes(*(asked, asked) if found is None else (found.name, found.uri)):
            raise InvalidRequestError(
                "this table is excluded from maintenance",
                remedy="take it out of `exclude` in the registry of tables, if that is meant",
                table=name_or_uri,
                exclude=list(self.exclude),
            )
        if found is not None:
            return found
        self._refuse_inside(asked)
        for included in self.include:
            if is_matched((included.pattern,), (asked,)):
                return unregistered(asked, included.connection)
        if self.single_user:
            return unregistered(asked)
        raise self._not_registered(name_or_uri)

    def _refuse_inside(self, uri: str) -> None:
        """Raise ``InvalidRequestError`` for flushed MemTables and branches, which Lance opens as tables."""
        if names_inside_of_table(uri) or not self._entries.keys().isdisjoint(places_of(uri)):
            raise InvalidRequestError(
                "this address lies inside a table", remedy="name the table, not what belongs to it", table=uri
            )

    def _not_registered(self, name_or_uri: str) -> InvalidRequestError:
        return InvalidRequestError(
            "this table is not registered",
            remedy="add it to the registry of tables, or correct the name; a path begins with '/' or './'",
            table=name_or_uri,
            known=most_like(name_or_uri, [table.name for table in self.maintained]),
        )


def tables_left(before: Sequence[RegisteredTable], after: Registry) -> tuple[str, ...]:
    """Return the names of tables that a registry does not know any more: half a file may be a registry, too."""
    known = {table.uri for table in after.maintained} | {each.name for each in after.broken}
    return tuple(table.name for table in before if not {table.uri, table.name} & known)


def unregistered(uri: str, connection: str = "") -> RegisteredTable:
    """Return what is known of a table without an entry; its name is its address."""
    # Not validated: an address is not a name.
    return RegisteredTable.model_construct(
        name=uri,
        uri=uri,
        connection=connection,
        every_minutes=10.0,
        collect_garbage=False,
        remove_versions=False,
        input_suites=(),
        checks=QualityGate.OFF,
        suites=(),
    )
