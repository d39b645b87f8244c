"""Adding tables to a registry file, which keeps everything that others wrote there."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memwal_core.errors import ConflictError, InvalidRequestError, UnavailableError
from memwal_core.registry.addresses import is_table_name
from memwal_core.registry.load import parse_registry
from memwal_core.registry.model import Registry
from memwal_core.storage.address import canonical_uri, local_path

_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A table that is not registered yet.

    Attributes:
        name: Unique in the registry.
        uri: In its one spelling.
        connection: Airflow connection of its object store; may be empty.
    """

    name: str
    uri: str
    connection: str = ""

    def to_toml(self) -> str:
        """Return the entry as a section of the registry."""
        lines = ["[[tables]]", f"name = {_quoted(self.name)}", f"uri = {_quoted(self.uri)}"]
        return "\n".join([*lines, f"connection = {_quoted(self.connection)}"] if self.connection else lines) + "\n"


@dataclass(frozen=True, slots=True)
class Registration:
    """What is added to a registry, and what is not.

    Attributes:
        excluded: Addresses that the registry excludes from maintenance.
    """

    added: tuple[NewEntry, ...]
    known: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "added": [{"name": each.name, "uri": each.uri} for each in self.added],
            "known": list(self.known),
            "excluded": list(self.excluded),
        }


def plan_registration(registry: Registry, uris: Sequence[str], connection: str = "") -> Registration:
    """Return the entries that a registry lacks; a name is made of the address and never taken twice. Pure.

    Raises:
        InvalidRequestError: An address cannot be used.
    """
    names, addresses = {table.name for table in registry.tables}, {table.uri for table in registry.tables}
    added, known, excluded = list[NewEntry](), list[str](), list[str]()
    for uri in dict.fromkeys(canonical_uri(each) for each in uris):
        name = _free_name(uri, names)
        if uri in addresses:
            known.append(uri)
        elif registry.excludes(name, uri):
            excluded.append(uri)
        else:
            added.append(NewEntry(name, uri, connection))
            names.add(name)
    return Registration(tuple(added), tuple(known), tuple(excluded))


def register_tables(path: str, uris: Sequence[str], *, connection: str = "", dry_run: bool = False) -> Registration:
    """Add tables to a registry file, and leave every other byte of it as it is.

    Two calls at once do not lose each other's entries; a reader sees the file as it was or as it is, never half of it.

    Args:
        path: The file; made if it does not exist.
        uris: Addresses of tables.
        connection: Airflow connection of their object store.
        dry_run: Only say what would be added.

    Raises:
        InvalidRequestError: The file cannot be read, is not understood, or takes no further section; it stays as it
            is.
        ConflictError: Someone else changed the file meanwhile. Run again.
        UnavailableError: The file cannot be written. Correct its rights or its place.
    """
    file = Path(os.path.realpath(local_path(path)))
    if dry_run:
        return plan_registration(parse_registry(_read(file), path), uris, connection)
    with _alone(file):
        before = _read(file)
        registry = parse_registry(before, path)
        planned = plan_registration(registry, uris, connection)
        if planned.added:
            after = _with(before, planned.added)
            _check(registry, after, path, planned)
            _replace(file, before, after)
    return planned


def _with(text: str, entries: Sequence[NewEntry]) -> str:
    start = text if not text or text.endswith("\n") else f"{text}\n"
    return (
        "\n".join([start, *(each.to_toml() for each in entries)])
        if start
        else "\n".join(each.to_toml() for each in entries)
    )


def _check(registry: Registry, text: str, path: str, planned: Registration) -> None:
    """Refuse a text that does not mean what was there and the new entries."""
    try:
        after = parse_registry(text, path)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            "the registry takes no further section as it is written",
            remedy="write tables as [[tables]] sections, or add these entries by hand",
            path=path,
            entries=[each.to_toml() for each in planned.added],
            problem=str(error.facts.get("problem", error.what)),
        ) from error
    if after.model_copy(update={"tables": after.tables[: len(registry.tables)]}) != registry:
        raise InvalidRequestError(
            "the registry would not mean the same any more", remedy="add the entries by hand", path=path
        )


def _free_name(uri: str, taken: set[str]) -> str:
    """Return a name that says where the table is, and that no other one has."""
    parts = [_plain(each) for each in uri.split("/")]
    parts = [each for each in parts if each]
    for count in range(1, min(3, len(parts)) + 1):
        name = "-".join(parts[-count:])[-_LONGEST_NAME:].lstrip("._-")
        if is_table_name(name) and name not in taken:
            return name
    stem = (parts[-1] if parts else "table")[: _LONGEST_NAME - 8]
    return next(name for number in range(2, len(taken) + 3) if (name := f"{stem}-{number}") not in taken)


def _plain(part: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]+", "-", part.removesuffix(".lance")).strip("._-")


def _quoted(text: str) -> str:
    # Names and addresses have no control characters, which TOML would want escaped otherwise.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")  # With the ends of lines as they are.
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            "the registry of tables cannot be read", remedy="correct the path, or the file's rights", path=str(file),
            problem=str(error),
        ) from error  # fmt: skip


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Keep other registrations out; the lock is on the directory, since the file is replaced."""
    try:
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(file: Path, before: str, after: str) -> None:
    staged = file.with_name(f".{file.name}.new")
    try:
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o644
        staged.unlink(missing_ok=True)
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            os.fchmod(descriptor, mode)
            out.write(after)
            out.flush()
            os.fsync(descriptor)
        if _read(file) != before:
            raise ConflictError("someone else changed the registry", remedy="run the command again", path=str(file))
        staged.replace(file)
    except OSError as error:
        raise _unwritable(file, error) from error
    finally:
        staged.unlink(missing_ok=True)


def _unwritable(file: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        "the registry of tables cannot be written",
        remedy="correct its place or its rights",
        path=str(file),
        problem=error.strerror or str(error),
    )
