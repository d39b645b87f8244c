"""The versions of a base table that can still be opened, and the merge progress of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from memwal_core.base_table.history.progress import MergedGenerations, ProgressLine
from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.base_table.translate import translated
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.memwal_index.codec import decode_details, is_legacy_payload
from memwal_core.format.paths import (
    BRANCHES_DIRECTORY,
    TABLE_MANIFEST_SUFFIX,
    TABLE_VERSIONS_DIRECTORY,
    version_of_manifest,
)
from memwal_core.format.table_manifest import MemWalEntry, read_manifest
from memwal_core.storage import ObjectInfo, ObjectStore
from memwal_core.storage.concurrent import at_most, map_concurrently

_NOTHING: MergedGenerations = MappingProxyType({})
_READ_AT_ONCE = 128
"""Manifests whose progress is in memory before it is shared."""

FEW_VERSIONS = 16
"""Up to here, reading every version costs no more than remembering them is worth."""


@dataclass(frozen=True, slots=True)
class RetainedVersion:
    """One version of the table, or of a branch of it, whose manifest exists.

    Attributes:
        branch: The branch it belongs to; None for the main line.
        enabled: Whether it has a MemWAL index. One without imposes nothing.
        legacy: Whether that index has the layout of early releases, whose progress is not read.
        merged: Region -> merged generation; a missing region has merged nothing.
        modified: When its manifest was written, in UTC; None if unknown.
        begins_clone: Whether it is the first version of a clone, whose progress is that of the original's regions.
        manifest: Its manifest, as a listing showed it.
        is_recalled: Whether this was not read from the manifest, but remembered.
    """

    version: int
    branch: str | None = None
    tags: tuple[str, ...] = ()
    enabled: bool = True
    legacy: bool = False
    merged: MergedGenerations = field(default_factory=lambda: _NOTHING, repr=False)
    modified: datetime | None = None
    begins_clone: bool = False
    manifest: ObjectInfo | None = field(default=None, repr=False, compare=False)
    is_recalled: bool = field(default=False, repr=False, compare=False)

    @property
    def label(self) -> str:
        """The version as people name it."""
        line = f"version {self.version}" if self.branch is None else f"version {self.version} of branch {self.branch}"
        return f"{line} (tagged {', '.join(self.tags)})" if self.tags else line


def retained_versions(
    table: TableReader,
    concurrency: int,
    *,
    with_tags: bool = True,
    held: int | None = None,
    recall: Callable[[ObjectStore], Mapping[ObjectInfo, RetainedVersion]] | None = None,
) -> tuple[RetainedVersion, ...]:
    """Read the merge progress of every version that can still be opened: the table's own, then branches'.

    One listing, and one request per version that is not recalled, or two for manifests of more than 64 KiB. Tags are
    asked through the version ``held`` if the caller has it open; they belong to no version.
    ``CorruptionError``: a manifest cannot be read, or a tag names a version that does not exist.

    Args:
        table: The table.
        concurrency: Requests under way at once.
        with_tags: Whether to read which versions are tagged.
        held: A version that is open.
        recall: Returns what is remembered of versions, where there are many; all are read if None.
    """
    tags = _tags(table, held) if with_tags else {}
    files = [*_manifests(table.store, TABLE_VERSIONS_DIRECTORY), *_manifests(table.store, BRANCHES_DIRECTORY)]
    files.sort(key=_place)
    recalled = recall(table.store) if recall is not None and len(files) > FEW_VERSIONS else {}
    at_once = at_most(table.store.kind, len(files), concurrency)
    line = ProgressLine()
    found: list[RetainedVersion] = []
    for start in range(0, len(files), _READ_AT_ONCE):
        decoder = _Decoder()

        def look(info: ObjectInfo, decoder: _Decoder = decoder) -> RetainedVersion | None:
            return recalled.get(info) or _read(table.store, info, decoder)

        for each in map_concurrently(look, files[start : start + _READ_AT_ONCE], at_once):
            if each is not None:
                tagged = tuple(sorted(tags.pop((each.branch, each.version), ())))
                merged = each.merged if each.is_recalled else line.next(each.merged)
                found.append(replace(each, tags=tagged, merged=merged))
    if tags:
        raise CorruptionError(
            "a tag names a version that does not exist",
            remedy="delete the tag, or restore the version's manifest",
            table=table.uri,
            tags={name: version for (_, version), names in tags.items() for name in names},
        )
    return tuple(sorted(found, key=lambda each: (each.branch or "", each.version)))


def _place(info: ObjectInfo) -> tuple[str, int]:
    """Return what orders manifests by their line of versions, then by version."""
    directory, _, name = info.path.rpartition("/")
    return directory, version_of_manifest(name) or 0


def inherited_progress(table: TableReader) -> MergedGenerations:
    """Return the merge progress with which a clone began; empty if its first version is gone, or it is none.

    One listing, and one request more.
    ``CorruptionError``: that version's manifest cannot be read.
    """
    files = {
        version_of_manifest(each.path.rpartition("/")[2]): each
        for each in _manifests(table.store, TABLE_VERSIONS_DIRECTORY)
    }
    first = min((version for version in files if version is not None), default=None)
    found = _read(table.store, files[first], _Decoder()) if first is not None else None
    return found.merged if found is not None and found.begins_clone else _NOTHING


class _Decoder:
    """Decodes index details; versions with the same bytes share one result."""

    def __init__(self) -> None:
        self._known: dict[bytes, MergedGenerations] = {}

    def merged(self, entry: MemWalEntry) -> MergedGenerations:
        known = self._known.get(entry.payload)
        if known is None:
            known = self._known[entry.payload] = decode_details(entry.payload).merged_generations
        return known


def _manifests(store: ObjectStore, directory: str) -> list[ObjectInfo]:
    """List all table manifests below a directory, of either naming; staged ones have another suffix."""
    return [
        info
        for info in store.list_objects(directory)
        if info.path.endswith(TABLE_MANIFEST_SUFFIX) and info.path.split("/")[-2] == TABLE_VERSIONS_DIRECTORY
    ]


def _read(store: ObjectStore, info: ObjectInfo, decoder: _Decoder) -> RetainedVersion | None:
    try:
        facts = read_manifest(info.size_bytes, lambda start, length: store.get_range(info.path, start, length))
    except ObjectNotFoundError:
        return None  # Cleaned up since the listing: no longer retained.
    root = info.path[: info.path.rindex(f"{TABLE_VERSIONS_DIRECTORY}/")]
    branch = root.strip("/").removeprefix(f"{BRANCHES_DIRECTORY}/")
    legacy = facts.mem_wal is not None and is_legacy_payload(facts.mem_wal.payload)
    return RetainedVersion(
        version=facts.version,
        branch=branch or None,
        enabled=facts.mem_wal is not None,
        legacy=legacy,
        merged=_NOTHING if facts.mem_wal is None or legacy else decoder.merged(facts.mem_wal),
        modified=info.modified,
        begins_clone=facts.begins_clone,
        manifest=info,
    )


def _tags(table: TableReader, held: int | None) -> dict[tuple[str | None, int], list[str]]:
    dataset = table.dataset(held)
    with translated("list tags", table.uri):
        listed = dataset.tags.list()
    found: dict[tuple[str | None, int], list[str]] = {}
    for name, tag in listed.items():
        found.setdefault((tag.get("branch"), tag["version"]), []).append(name)
    return found
