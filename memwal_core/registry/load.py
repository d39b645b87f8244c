"""Reading the registry."""

from __future__ import annotations

import errno
import logging
import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.registry.addresses import canonical_from, is_line, is_matched
from memwal_core.registry.admit import suite_file
from memwal_core.registry.model import FOLDER, BrokenEntry, RegisteredTable, Registry
from memwal_core.settings.similar import problem_of
from memwal_core.storage.address import local_path

REGISTRY_VARIABLE = "MAINTENANCE_TABLES"
"""Names the file. Not ``MEMWAL_``: what is installed is no setting of the library."""

_PASSING = {
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.EMFILE,
    errno.ENFILE, errno.ENOMEM,
}  # fmt: skip

_SETTLED_S = 0.5
"""A file that nobody changed for as long is whole: editors may write in place, and half a setting may be a setting."""

_LOOKS = 10

_log = logging.getLogger(__name__)
_told: dict[str, tuple[BrokenEntry, ...]] = {}
"""The entries of each file that were logged: a service reads one in every round, and says it once."""


def load_registry(environment: Mapping[str, str] | None = None) -> Registry | None:
    """Read the registry that the environment names; None if it names none.

    The entry of a table that is not understood is left out, and keeps no other table from its maintenance.

    Raises:
        InvalidRequestError: The file cannot be read, or says something that is not understood.
        UnavailableError: Its file system, or this machine, fails. Try again.
    """
    path = (os.environ if environment is None else environment).get(REGISTRY_VARIABLE)
    return read_registry(path) if path else None


def read_registry(path: str, clock: Clock | None = None, *, is_followed: bool = False) -> Registry:
    """Read a registry file; entries and errors as for ``load_registry``.

    Waits for half a second where the file has just changed.

    Args:
        path: The file, or a pipe.
        clock: The system's if None.
        is_followed: Whether it is read again and again: a pipe names no table from the second time on.

    Raises:
        InvalidRequestError: Also: a pipe is to be followed.
        UnavailableError: Its file system, or this machine, fails, or it changes all the time. Try again.
    """
    path = local_path(path)
    if is_followed and os.path.exists(path) and not os.path.isfile(path):
        raise InvalidRequestError(
            "the registry of tables is no file, and can be read only once",
            remedy="write it into a file, whose changes are followed",
            path=path,
        )
    try:
        text = _settled(Path(path), clock or SystemClock())
        registry = parse_registry(text, path, leave_out_broken=True)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise UnavailableError(
                "the registry of tables cannot be read now",
                remedy="see what its file system or this machine lacks, then try again",
                path=path,
                problem=str(error),
            ) from error
        raise InvalidRequestError(
            "the registry of tables cannot be read",
            remedy=f"correct the path in {REGISTRY_VARIABLE} or --registry, or the file's rights",
            path=path,
            problem=str(error),
        ) from error
    for entry in registry.broken:
        if entry not in _told.get(path, ()):
            _log.error("a table is left out of the registry [table=%s, problem=%s]", entry.name, entry.problem)
    _told[path] = registry.broken
    return registry


def _settled(path: Path, clock: Clock) -> str:
    """Return what a file says once nobody is writing it."""
    for _ in range(_LOOKS):
        changed = path.stat().st_mtime_ns
        text = path.read_text(encoding="utf-8")
        age_s = clock.now().timestamp() - changed / 1e9
        # A time to come is of another machine's clock and tells nothing.
        is_settled = not 0 <= age_s < _SETTLED_S and path.stat().st_mtime_ns == changed
        if is_settled or not path.is_file():  # A pipe cannot be read again.
            return text
        clock.sleep(_SETTLED_S)
    raise UnavailableError(
        "the registry of tables changes all the time",
        remedy="see what writes it, then try again",
        path=str(path),
        looks=_LOOKS,
    )


def require_registry() -> Registry:
    """Read the registry that the environment names.

    Raises:
        InvalidRequestError: As ``load_registry``, or it names none: then no run may name any table.
    """
    registry = load_registry()
    if registry is None:
        raise InvalidRequestError(
            "no tables are registered",
            remedy=f"name a registry with {REGISTRY_VARIABLE}; docs/operating.md shows one",
        )
    return registry


def parse_registry(text: str, path: str, *, leave_out_broken: bool = False) -> Registry:
    """Read a registry.

    Args:
        text: TOML.
        path: Where it is from: for the error, and because its relative paths begin there.
        leave_out_broken: Whether entries of tables that are not understood become ``broken`` instead of an error.

    Raises:
        InvalidRequestError: It says something that is not understood, or names something twice.
    """
    folder = Path(path).resolve().parent
    try:
        document = tomllib.loads(text)
        if "broken" in document:
            raise _wrong(path, "broken: there is no such name")
        broken: tuple[BrokenEntry, ...] = ()
        if leave_out_broken and isinstance(document.get("tables"), list):
            document["tables"], broken = _divided(document["tables"], str(folder))
        registry = Registry.model_validate(document, context={FOLDER: str(folder)})
    except ValidationError as error:
        raise _wrong(path, _first_problem(error, Registry)) from error
    except ValueError as error:  # Python refuses numbers of thousands of digits without TOML's own error.
        raise _wrong(path, str(error)) from error
    except RecursionError as error:
        raise _wrong(path, "it is nested too deep") from error
    suites = os.path.realpath(folder / registry.suites_folder)
    return _with_suites(registry.model_copy(update={"suites_folder": suites, "broken": broken}), leave_out_broken)


def _with_suites(registry: Registry, leave_out_broken: bool) -> Registry:
    """Return a registry whose tables name the files of their suites; one with another file is not understood.

    What is not understood and excluded is nobody's concern.
    """
    tables, broken = [], list(registry.broken)
    for table in registry.tables:
        try:
            files = tuple(suite_file(name, registry) for name in table.suites)
            tables.append(table.model_copy(update={"suites": files}))
        except (InvalidRequestError, OSError) as error:
            if not leave_out_broken:
                raise
            broken.append(BrokenEntry(name=table.name, problem=f"suites: {error}"))
    kept = tuple(each for each in broken if not is_matched(registry.exclude, (each.name,)))
    return registry.model_copy(update={"tables": tuple(tables), "broken": kept})


def _divided(entries: list[Any], folder: str) -> tuple[list[Any], tuple[BrokenEntry, ...]]:
    """Return the entries that are understood, and those that are not or that name something twice."""
    known: list[tuple[Any, RegisteredTable]] = []
    broken, unread = [], []
    for number, entry in enumerate(entries):
        try:
            known.append((entry, RegisteredTable.model_validate(entry, context={FOLDER: folder})))
        except ValidationError as error:
            said = entry.get("name") if isinstance(entry, dict) else None
            # Logs and alerts are told it, and Prometheus takes NUL for the end of all metrics.
            name = said if isinstance(said, str) and said and is_line(said) else f"tables.{number}"
            broken.append(BrokenEntry(name=name, problem=_first_problem(error, RegisteredTable)))
            unread.append(entry)
    for what in ("name", "uri"):
        count = Counter([*(getattr(table, what) for _, table in known), *_claimed(what, unread, folder)])
        twice = [table for _, table in known if count[getattr(table, what)] > 1]
        # Which of them is meant cannot be told, and they may differ in what is deleted.
        problem = f"several entries have this {what}"
        broken += [BrokenEntry(name=table.name, problem=problem) for table in twice]
        known = [(entry, table) for entry, table in known if count[getattr(table, what)] == 1]
    # The first problem of a name is the one that a person can see in the file.
    return [entry for entry, _ in known], tuple({entry.name: entry for entry in reversed(broken)}.values())[::-1]


def _claimed(what: str, unread: Iterable[Any], folder: str) -> Iterator[str]:
    """Yield the names, or addresses, that entries say which are not understood."""
    for entry in unread:
        said = entry.get(what) if isinstance(entry, dict) else None
        with suppress(InvalidRequestError):
            if isinstance(said, str):
                yield canonical_from(folder, said) if what == "uri" else said


def _first_problem(error: ValidationError, kind: type[BaseModel]) -> str:
    first = error.errors()[0]
    known = kind.model_fields if len(first["loc"]) == 1 else ()
    return f"{'.'.join(str(part) for part in first['loc'])}: {problem_of(first, known)}"


def _wrong(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the registry of tables is not understood",
        remedy="correct the file; docs/operating.md describes it",
        path=path,
        problem=problem,
    )
