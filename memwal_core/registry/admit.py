"""What a run may name: the names that the registry gives, which here become addresses and files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.jobs.request import Grant, JobRequest
from memwal_core.registry.addresses import below, require_line
from memwal_core.registry.model import RegisteredSource, RegisteredTable, Registry
from memwal_core.text import most_like

_R = TypeVar("_R", bound=JobRequest)
_TABLE_NAME = re.compile(r"^[0-9A-Za-z_]+(\.[0-9A-Za-z_]+)*$")


def admit(request: _R, table: RegisteredTable, registry: Registry) -> _R:
    """Return a request with what the registry gives for the names in it.

    Which fields name something is declared in the request, by ``Grant``. Where the registry opens its door for a
    single user, fields may also hold addresses, files and options themselves; suites stay those of the registry.

    Raises:
        InvalidRequestError: It names something that is not registered, or not for this table; a text in it is not one
            line of bounded length; or only people start the job.
    """
    if request.info.by_hand:
        raise InvalidRequestError(
            "only people start this job", remedy="run its command", job=request.info.name, table=table.name
        )
    _require_lines(request.model_dump())
    return request.model_copy(update={**_reading(request, table, registry), **_writing(request, registry)})


def _require_lines(value: object) -> None:
    if isinstance(value, str):
        require_line(value)
    elif isinstance(value, Mapping):
        _require_lines([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            _require_lines(each)


def granted_fields(kind: type[JobRequest]) -> dict[Grant, str]:
    """Return which field of a request names what."""
    return {
        mark: name for name, field in kind.model_fields.items() for mark in field.metadata if isinstance(mark, Grant)
    }


def _reading(request: JobRequest, table: RegisteredTable, registry: Registry) -> dict[str, Any]:
    """Return the fields that say where rows come from."""
    fields = granted_fields(type(request))
    if Grant.SOURCES not in fields:
        return {}
    asked: Sequence[str] = getattr(request, fields[Grant.SOURCES])
    named = [(_source(registry, each.partition("/")[0]), each) for each in asked]
    if registry.single_user and not any(source for source, _ in named):
        return {}
    sources = {source.name: source for source, _ in named if source is not None}
    if len(sources) != 1 or not all(source for source, _ in named):
        raise _not_registered("source", asked, [source.name for source in registry.sources])
    (source,) = sources.values()
    if source.tables and table.name not in source.tables:
        raise InvalidRequestError(
            "this source may not be written to this table",
            remedy="name a source of this table, or add the table to the source in the registry",
            source=source.name,
            table=table.name,
        )
    own = {Grant.FORMAT: source.format, Grant.READER_OPTIONS: source.options}
    for grant, value in own.items():
        given = getattr(request, fields[grant])
        if given and given != value:
            raise InvalidRequestError(
                "the registry says how this source is read",
                remedy=f"leave {fields[grant]} empty",
                source=source.name,
                field=fields[grant],
            )
    addresses = tuple(_below(source, each.partition("/")[2]) for _, each in named)
    return {fields[Grant.SOURCES]: addresses, **{fields[grant]: value for grant, value in own.items()}}


def _source(registry: Registry, name: str) -> RegisteredSource | None:
    return next((source for source in registry.sources if source.name == name), None)


def _below(source: RegisteredSource, relative: str) -> str:
    if source.format is not SourceFormat.TABLE:
        return below(source.address, relative)
    if not relative:
        return source.address
    if not _TABLE_NAME.fullmatch(relative):
        raise InvalidRequestError(
            "a table of a registered catalog is named by letters, digits, underscores and dots",
            remedy="correct the name",
            source=source.name,
            name=relative,
        )
    return f"{source.address}.{relative}"


def _writing(request: JobRequest, registry: Registry) -> dict[str, Any]:
    """Return the fields that name suites, and where results are written."""
    fields, found = granted_fields(type(request)), dict[str, Any]()
    if suites := fields.get(Grant.SUITES):
        found[suites] = tuple(suite_file(name, registry) for name in getattr(request, suites))
    docs = fields.get(Grant.DOCS)
    if docs and (asked := getattr(request, docs)):
        known = registry.docs.get(asked)
        if known is None and not registry.single_user:
            raise _not_registered("target of pages", [asked], list(registry.docs))
        found[docs] = known or asked
    return found


def suite_file(name: str, registry: Registry) -> str:
    """Return the file of a suite, named by its path in the folder.

    Suites execute code, those in JSON as well, so no setting admits any other file.

    Raises:
        InvalidRequestError: There is no such file in the folder, or others may write it.
    """
    folder = Path(os.path.realpath(registry.suites_folder))
    path = Path(os.path.realpath(folder / name)) if "\0" not in name else folder
    if not path.is_relative_to(folder) or not path.is_file():
        known = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.suffix in {".json", ".py"})
        raise _not_registered("suite", [name], known)
    _refuse_writable(path, folder)
    return str(path)


def _refuse_writable(path: Path, folder: Path) -> None:
    """Raise ``InvalidRequestError`` if users of the machine other than the operator's may change what is executed."""
    for part in (path, *path.parents):
        mode = part.stat().st_mode
        # Above the folder, a sticky directory lets others add entries, and not replace the one that leads here.
        is_safe = not mode & stat.S_IWOTH or (mode & stat.S_ISVTX and part in folder.parents)
        if not is_safe:
            raise InvalidRequestError(
                "every user of this machine may write the suite, or a directory that leads to it",
                remedy=f"take that right away: chmod o-w {part}",
                suite=str(path),
                writable=str(part),
            )


def _not_registered(what: str, asked: Sequence[str], known: Sequence[str]) -> InvalidRequestError:
    return InvalidRequestError(
        f"this {what} is not registered",
        remedy="name one that is known, or have the operator add it to the registry",
        asked=list(asked),
        known=most_like(asked[0] if asked else "", known),
    )
