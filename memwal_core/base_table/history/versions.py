"""The versions of a base table, the tags and branches that keep them, and removing those that are not needed."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import translated
from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, parse_staged_manifest_name, version_of_manifest


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version that exists, with its time (UTC), the tags that keep it and the branches that begin from it, sorted.

    Attributes:
        has_staged: Whether a staged manifest of it was left over.
    """

    version: int
    timestamp: datetime
    tags: tuple[str, ...]
    branches: tuple[str, ...] = ()
    has_staged: bool = False


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What removing versions freed, or would free.

    Attributes:
        size_bytes: Bytes of the files that only they needed.
        index_files: External region snapshots included.
    """

    versions: int
    size_bytes: int
    data_files: int
    index_files: int


def list_versions(table: TableReader) -> tuple[TableVersion, ...]:
    """Return the versions of a table that exist, ascending, by one listing; no manifest is read.

    Their times are those of their manifests in the store, as for everything else that is kept for a time.
    """
    dataset = table.dataset()
    tags: dict[int, list[str]] = {}
    branches: dict[int, list[str]] = {}
    with translated("list tags and branches", table.uri):
        for name, tag in dataset.tags.list().items():
            if tag["branch"] is None:
                tags.setdefault(tag["version"], []).append(name)
        for name, branch in dataset.branches.list().items():
            if branch["parent_branch"] is None:
                branches.setdefault(branch["parent_version"], []).append(name)
    found: dict[int, datetime] = {}
    staged: set[int] = set()
    for info in table.store.list_objects(TABLE_VERSIONS_DIRECTORY):
        name = info.path.rpartition("/")[2]
        if (version := version_of_manifest(name)) is not None:
            found[version] = info.modified
        else:
            with suppress(InvalidRequestError):  # Another file.
                staged.add(parse_staged_manifest_name(name))
    return tuple(
        TableVersion(
            version,
            found[version],
            tuple(sorted(tags.get(version, ()))),
            tuple(sorted(branches.get(version, ()))),
            version in staged,
        )
        for version in sorted(found)
    )


def explain_cleanup(table: TableReader, versions: Collection[int]) -> CleanupResult:
    """Return what removing some versions would free; nothing is removed."""
    if not versions:
        return CleanupResult(0, 0, 0, 0)
    dataset = table.dataset()
    with translated("explain the removal of versions", table.uri):
        explained = dataset.explain_cleanup_old_versions(versions=sorted(versions), error_if_tagged_old_versions=False)
        return _result(explained.stats)


def remove_versions(table: BaseTable, versions: Collection[int]) -> CleanupResult:
    """Remove versions and the files that only they needed; repeat after ``UnavailableError``.

    The newest version, tagged ones and those from which branches begin stay, even if they are named or were tagged a
    moment ago. So do files younger than seven days that no version names, because a commit may be about to name them.
    The newest version is durable before anything is removed (``BaseTable.make_durable`` and its errors).
    """
    if not versions:
        return CleanupResult(0, 0, 0, 0)
    table.make_durable()
    dataset = table.dataset()
    with translated("remove versions", table.uri):
        return _result(
            dataset.cleanup_old_versions(
                versions=sorted(versions), error_if_tagged_old_versions=False, delete_unverified=False
            )
        )


def _result(stats: Any) -> CleanupResult:  # noqa: ANN401 - pylance ships no types
    return CleanupResult(
        versions=stats.old_versions,
        size_bytes=stats.bytes_removed,
        data_files=stats.data_files_removed,
        index_files=stats.index_files_removed,
    )
