"""Finding MemWAL tables below a directory, a bucket prefix or a LanceDB database. Reads only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from memwal_core.base_table import BaseTable, TableState
from memwal_core.errors import InvalidRequestError, MemwalError, ObjectNotFoundError
from memwal_core.format.paths import MEM_WAL_DIRECTORY, TABLE_VERSIONS_DIRECTORY
from memwal_core.ids import parse_region_id
from memwal_core.region.spec.describe import describe_spec
from memwal_core.settings import Settings, load_settings
from memwal_core.storage import ObjectStore, StoreKind, open_store
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a search goes.

    Attributes:
        depth: Levels of directories below the root.
    """

    depth: int = 6
    directories: int = 10_000


@dataclass(frozen=True, slots=True)
class DiscoveredTable:
    """A table with MemWAL.

    Attributes:
        version: The newest.
        sharding: How rows map to regions, in words.
    """

    uri: str
    version: int
    rows: int
    key: tuple[str, ...]
    sharding: str
    regions: int

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "uri": self.uri,
            "version": self.version,
            "rows": self.rows,
            "key": list(self.key),
            "sharding": self.sharding,
            "regions": self.regions,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """What could not be looked at, or is not as it should be: where, and why."""

    uri: str
    what: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"uri": self.uri, "what": self.what}


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a search found.

    Attributes:
        tables: Tables with MemWAL, by address.
        plain: Addresses of Lance tables without MemWAL.
        problems: What could not be looked at.
    """

    root: str
    tables: tuple[DiscoveredTable, ...]
    plain: tuple[str, ...]
    problems: tuple[Problem, ...]
    directories: int

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "root": self.root,
            "tables": [each.to_dict() for each in self.tables],
            "plain": list(self.plain),
            "problems": [each.to_dict() for each in self.problems],
            "directories": self.directories,
        }


def discover(
    uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
) -> Discovery:
    """Find every MemWAL table below an address. One that cannot be read is a problem in the result, and no error.

    Symbolic links are not followed, and nothing is looked for inside of a table.

    Args:
        uri: A directory, a bucket with or without a prefix, a LanceDB database, or a table itself.
        storage_options: Options of the object store under pylance's names.
        settings: Storage and its concurrency; defaults if None.
        bounds: How far to look.

    Raises:
        ObjectNotFoundError: There is no such directory.
        InvalidRequestError: The address or the options cannot be used.
    """
    settings = settings if settings is not None else load_settings()
    store = open_store(uri, storage_options=storage_options, settings=settings.storage)
    if store.kind is StoreKind.LOCAL and not os.path.isdir(store.uri):
        what = "this is a file, not a directory" if os.path.exists(store.uri) else "there is no such directory"
        raise ObjectNotFoundError(what, remedy="correct the path", path=store.uri)
    walk = _Walk(store, settings.storage.concurrency, bounds if bounds is not None else Bounds())
    walk.run()
    seen = map_concurrently(
        lambda path: _examine(_address(store, path), storage_options, settings), walk.tables, walk.limit
    )
    found = [each for each in seen if isinstance(each, DiscoveredTable)]
    problems = [*walk.problems, *(each for each in seen if isinstance(each, Problem))]
    return Discovery(
        root=store.uri,
        tables=tuple(sorted(found, key=lambda each: each.uri)),
        plain=tuple(sorted(each for each in seen if isinstance(each, str))),
        problems=tuple(sorted(problems, key=lambda each: each.uri)),
        directories=walk.listed,
    )


@dataclass(slots=True)
class _Walk:
    """Directories level by level, each listed once."""

    store: ObjectStore
    limit: int
    bounds: Bounds
    tables: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    listed: int = 0

    def run(self) -> None:
        level = [""]
        for depth in range(self.bounds.depth + 1):
            level = self._within(level)
            self.listed += len(level)
            names = map_concurrently(self._list if depth else self.store.list_directories, level, self.limit)
            level = [child for path, found in zip(level, names, strict=True) for child in self._below(path, found)]
        if level:
            self._problem(level[0], f"{len(level)} directories are deeper than {self.bounds.depth} levels")

    def _within(self, level: list[str]) -> list[str]:
        room = self.bounds.directories - self.listed
        if len(level) > room:
            what = f"after {self.bounds.directories:,} directories {len(level) - room:,} or more are left"
            self._problem(level[room], what)
        return level[:room]

    def _list(self, path: str) -> list[str] | MemwalError:
        try:
            return self.store.list_directories(path)
        except MemwalError as error:
            return error

    def _below(self, path: str, names: list[str] | MemwalError) -> list[str]:
        """Take note of a directory, and return which ones to list next."""
        if isinstance(names, MemwalError):
            self._problem(path, names.what)
            return []
        if TABLE_VERSIONS_DIRECTORY in names:
            self.tables.append(path)
            return []
        if MEM_WAL_DIRECTORY in names:
            self._problem(path, "it has regions but no base table: its versions are gone")
            return []
        return [child for name in names if (child := self._child(path, name))]

    def _child(self, path: str, name: str) -> str:
        child = f"{path}/{name}" if path else name
        if not name.isprintable():
            self._problem(path, f"{name!a}: its name cannot be shown")
            return ""
        try:
            place = self.store.uri_of(child)
        except InvalidRequestError:
            self._problem(child, "its name cannot be part of an address")
            return ""
        if self.store.kind is StoreKind.LOCAL and os.path.islink(place):
            self._problem(child, "a symbolic link: not followed")
            return ""
        return child

    def _problem(self, path: str, what: str) -> None:
        self.problems.append(Problem(f"{self.store.uri}/{path}".rstrip("/"), what))


def _address(store: ObjectStore, path: str) -> str:
    return store.uri_of(path) if path else store.uri


def _examine(
    uri: str, storage_options: Mapping[str, str] | None, settings: Settings
) -> DiscoveredTable | Problem | str:
    """Return a table with MemWAL, what is wrong with it, or the address of one without MemWAL."""
    try:
        table = BaseTable.open(uri, storage_options=storage_options, settings=settings)
        state = table.state()
        regions = _regions(table)
        if state.entry is None:
            lost = f"it has {show_count(regions, 'region')}, but its MemWAL index is gone: run `memwal doctor`"
            return Problem(uri, lost) if regions else uri
        details = state.require_details()
    except MemwalError as error:
        return Problem(uri, error.what)
    sharding = "; ".join(describe_spec(spec, state.field_ids) for spec in details.region_specs) or "by hand"
    return DiscoveredTable(uri, state.version, state.num_rows, _key(state), sharding, regions)


def _key(state: TableState) -> tuple[str, ...]:
    return tuple(state.primary_key.columns)


def _regions(table: BaseTable) -> int:
    count = 0
    for name in table.store.list_directories(MEM_WAL_DIRECTORY):
        with suppress(InvalidRequestError):
            parse_region_id(name)
            count += 1
    return count
