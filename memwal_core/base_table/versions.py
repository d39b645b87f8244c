"""The versions of a base table that exist, who needs them, and removing those that nobody needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memwal_core.base_table.reading import TableReader
from memwal_core.base_table.table import BaseTable
from memwal_core.base_table.translate import translated


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version that exists.

    Attributes:
        version: Its number.
        timestamp: When it was made, timezone UTC.
        tags: Names that keep it, sorted.
    """

    version: int
    timestamp: datetime
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What removing versions freed, or would free.

    Attributes:
        versions: Versions removed.
        size_bytes: Bytes of the files that only they needed.
        data_files: Data files among them.
        index_files: Index files among them, external region snapshots included.
    """

    versions: int
    size_bytes: int
    data_files: int
    index_files: int


def list_versions(table: TableReader) -> tuple[TableVersion, ...]:
    """Return the versions of a table that exist, ascending.

    Raises:
        UnavailableError: Storage failed.
    """
    dataset = table.dataset()
    with translated("list versions", table.uri):
        tags: dict[int, list[str]] = {}
        for name, tag in dataset.tags.list().items():
            if tag["branch"] is None:
                tags.setdefault(tag["version"], []).append(name)
        found = {int(each["version"]): each["timestamp"] for each in dataset.versions()}
    return tuple(
        TableVersion(version, _in_utc(found[version]), tuple(sorted(tags.get(version, ()))))
        for version in sorted(found)
    )


def explain_cleanup(table: TableReader, versions: Collection[int]) -> CleanupResult:
    """Return what removing some versions would free; nothing is removed.

    Raises:
        UnavailableError: Storage failed.
    """
    dataset = table.dataset()
    if not versions:
        return CleanupResult(0, 0, 0, 0)
    with translated("explain the removal of versions", table.uri):
        explained = dataset.explain_cleanup_old_versions(versions=sorted(versions), error_if_tagged_old_versions=False)
        return _result(explained.stats)


def remove_versions(table: BaseTable, versions: Collection[int]) -> CleanupResult:
    """Remove versions and the files that only they needed.

    The newest version and tagged ones stay, even if they are named or were tagged a moment ago, and
    so do files younger than seven days that no version names, because a commit may be about to.

    Raises:
        UnavailableError: Storage failed. Repeat.
    """
    dataset = table.dataset()
    if not versions:
        return CleanupResult(0, 0, 0, 0)
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


def _in_utc(moment: Any) -> datetime:  # noqa: ANN401
    """Return a time of pylance, which is local and says nothing of its zone, in UTC."""
    utc: datetime = moment.astimezone(UTC)
    return utc
