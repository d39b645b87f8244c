"""What a reader must see, read in the plainest way possible, without the code under test's cleverness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar, cast

import lance
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import (
    ARROW_WAL_SUFFIX,
    DATA_DIRECTORY,
    DELETIONS_DIRECTORY,
    LANCE_WAL_SUFFIX,
    TABLE_VERSIONS_DIRECTORY,
    generation_path,
    version_of_manifest,
    wal_directory,
    wal_entry_path,
)
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest, RegionStatus
from memwal_core.storage import ObjectInfo
from memwal_core.wal import codec_for_suffix, find_tail
from testkit.tables.readable import DuplicateKeyError

_Content = TypeVar("_Content")
_BASE_FILES = tuple(f"{each}/" for each in (DATA_DIRECTORY, DELETIONS_DIRECTORY, TABLE_VERSIONS_DIRECTORY))


class _File(NamedTuple):
    path: str
    etag: str | None


class _Row(NamedTuple):
    key: int
    name: str
    is_deleted: bool


class _Version(NamedTuple):
    details: MemWalIndexDetails | None
    rows: list[_Row]


class PlainView:
    """What the versions of a table show, at one look after another.

    A look reads what is new since the one before it. What was read is kept only as long as all files that it may have
    come from lie there unchanged, so that a look misses what is gone.

    Args:
        table: Over a store that does not fail.
    """

    def __init__(self, table: BaseTable) -> None:
        """Begin without a look; what is read before the first one is kept for good."""
        self._table = table
        self._manifests = ManifestStore(table.store, IdSource())
        self._files: frozenset[_File] = frozenset()
        self._kept: dict[str, tuple[frozenset[_File], object]] = {}
        self._regions: list[tuple[RegionManifest, list[_Row]]] | None = None

    def look(self, listed: Iterable[ObjectInfo]) -> None:
        """Look at the table as it is now: these are all its objects."""
        files = frozenset(_File(each.path, each.etag) for each in listed)
        gone = self._files - files
        self._kept = {name: kept for name, kept in self._kept.items() if kept[0].isdisjoint(gone)}
        self._files, self._regions = files, None

    def versions(self) -> list[int]:
        """Return the versions that were there at the last look, ascending."""
        named = (file.path.rpartition("/") for file in self._files)
        found = (version_of_manifest(name) for directory, _, name in named if directory == TABLE_VERSIONS_DIRECTORY)
        return sorted(version for version in found if version is not None)

    def details(self, version: int) -> MemWalIndexDetails | None:
        """Return the MemWAL index of a version; None before there was one."""
        return self._version(version).details

    def rows(self, version: int) -> dict[int, str]:
        """Return key -> value of a base version, the flushed MemTables that it has not merged and the WAL's tail.

        Raises:
            DuplicateKeyError: The base table or a flushed MemTable holds a key twice.
        """
        details, base = self._version(version)
        view: dict[int, str] = {}
        _apply(view, base)
        for manifest, tail in self._regions_now():
            merged = details.merged_generation(manifest.region_id) if details is not None else 0
            for flushed in manifest.flushed_generations:
                if flushed.generation > merged:
                    _apply(view, self._flushed(manifest.region_id, flushed))
            _apply(view, tail)
        return view

    def _version(self, version: int) -> _Version:
        def read() -> _Version:
            return _Version(self._table.state(version).details, _base(self._table, version))

        return self._keep(f"version {version}", _BASE_FILES, read)

    def _regions_now(self) -> list[tuple[RegionManifest, list[_Row]]]:
        if self._regions is None:
            manifests = self._manifests.load_many(self._manifests.region_ids(), 1)
            self._regions = [(manifest, list(self._tail(manifest))) for manifest in manifests]
        return self._regions

    def _flushed(self, region_id: RegionId, flushed: FlushedGeneration) -> list[_Row]:
        path = generation_path(region_id, flushed.path)

        def read() -> list[_Row]:
            options = dict(self._table.storage_options) or None
            rows = lance.dataset(self._table.store.uri_of(path), storage_options=options).to_table()
            return _distinct(rows, f"{region_id} generation {flushed.generation}")

        # It may name files of the WAL instead of its own.
        return self._keep(path, (f"{path}/", f"{wal_directory(region_id)}/"), read)

    def _tail(self, manifest: RegionManifest) -> Iterator[_Row]:
        region_id, merged = manifest.region_id, manifest.replay_after_wal_id
        suffix = LANCE_WAL_SUFFIX if manifest.status is RegionStatus.SEALED else ARROW_WAL_SUFFIX
        codec, store = codec_for_suffix(suffix, {}), self._table.store
        for wal_id in range(merged + 1, find_tail(store, region_id, suffix, merged) + 1):
            path = wal_entry_path(region_id, wal_id, suffix)
            yield from self._keep(path, (path,), lambda: _rows(codec.read(store, region_id, wal_id).rows))  # noqa: B023 - called at once

    def _keep(self, name: str, files: tuple[str, ...], read: Callable[[], _Content]) -> _Content:
        """Return what was read under a name, or read it, from files whose paths begin so."""
        if name not in self._kept:
            content = read()
            self._kept[name] = frozenset(each for each in self._files if each.path.startswith(files)), content
        return cast("_Content", self._kept[name][1])


def lsm_view(table: BaseTable, version: int | None = None) -> dict[int, str]:
    """Return what a version of a table shows, the newest by default; arguments and errors as for ``PlainView``."""
    return PlainView(table).rows(table.state(version).version)


def base_rows(table: BaseTable, version: int) -> dict[int, str]:
    """Return key -> value of the base table alone; errors as for ``PlainView``."""
    return {row.key: row.name for row in _base(table, version)}


def _base(table: BaseTable, version: int) -> list[_Row]:
    return _distinct(table.dataset(version).to_table(columns=["id", "name"]), "base table")


def _distinct(table: pa.Table, source: str) -> list[_Row]:
    """Return rows that must not hold a key twice."""
    rows = _rows(table)
    twice = sorted(key for key, count in Counter(row.key for row in rows).items() if count > 1)
    if twice:
        raise DuplicateKeyError(f"{source}: {twice}")
    return rows


def _rows(table: pa.Table) -> list[_Row]:
    if table.num_rows == 0:
        return []  # A fence has no columns either.
    keys, names = table.column("id").to_pylist(), table.column("name").to_pylist()
    has_deleted = TOMBSTONE_COLUMN in table.schema.names
    deleted = table.column(TOMBSTONE_COLUMN).to_pylist() if has_deleted else [False] * len(keys)
    return [_Row(*values) for values in zip(keys, names, deleted, strict=True)]


def _apply(view: dict[int, str], rows: Iterable[_Row]) -> None:
    for row in rows:
        if row.is_deleted:
            view.pop(row.key, None)
        else:
            view[row.key] = row.name
