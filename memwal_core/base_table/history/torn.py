"""Torn manifests: newest versions of a base table that a power cut left unreadable, and setting them aside.

Lance syncs nothing on a local disk. A cut soon after a commit can leave the manifest's name without its bytes:
empty, cut off, or zeros. Commits of ours are synced before they become visible, so this is what remains of
another program's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.errors import ConflictError, CorruptionError, ObjectNotFoundError
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, version_of_manifest
from memwal_core.format.table_manifest import read_manifest
from memwal_core.storage import ObjectInfo, ObjectStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TornManifest:
    """A manifest that cannot be read, and has no whole one after it.

    Attributes:
        path: Relative to the table.
    """

    path: str
    version: int
    size_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class TornVersions:
    """The newest versions of a table, as far as they are torn.

    Attributes:
        torn: The newest first; empty if the newest version is whole.
        newest_whole: The version that is the newest without them; None if there is none.
    """

    torn: tuple[TornManifest, ...]
    newest_whole: int | None


def find_torn_versions(store: ObjectStore) -> TornVersions:
    """Read manifests from the newest downwards until one is whole; one listing and at least one read. Writes nothing.

    A manifest is whole if its footer, its message, and its index section parse, and if it is that of the version
    its name says. Whether the files it names exist is not looked at.

    Raises:
        UnavailableError: The store did not answer; nothing is known of the table.
    """
    torn: list[TornManifest] = []
    for version, info in _newest_first(store):
        try:
            problem = _problem(store, info, version)
        except ObjectNotFoundError:
            continue  # Removed since the listing.
        if problem is None:
            return TornVersions(tuple(torn), version)
        torn.append(TornManifest(info.path, version, info.size_bytes, problem))
    return TornVersions(tuple(torn), None)


def set_torn_versions_aside(store: ObjectStore, found: TornVersions, directory: str) -> tuple[str, ...]:
    """Move torn manifests to a directory, so that the newest whole version is the table's newest.

    Each is copied (synced on local disks) before it is removed, the newest first, so that a crash between any
    two steps leaves a state which ``find_torn_versions`` describes; a repeat finishes the work. A manifest that is
    whole by now is never touched. The next commit may use a version number that was set aside.

    Args:
        store: Rooted at the table.
        found: What ``find_torn_versions`` returned.
        directory: Where the copies go, relative to the table; made if it is missing.

    Returns:
        The copies, relative to the table, in the order of ``found.torn``.

    Raises:
        CorruptionError: No version is whole, so nothing would be left; nothing was moved.
        ConflictError: The newest versions are no longer those that were found; find them again.
        UnavailableError: The store did not answer; repeat it.
    """
    if found.newest_whole is None:
        raise CorruptionError(
            "no version of the table can be read",
            remedy="restore the table from a copy",
            table=store.uri,
            manifests=len(found.torn),
        )
    now = find_torn_versions(store)
    if now.newest_whole != found.newest_whole or not set(now.torn) <= set(found.torn):
        raise ConflictError(
            "the newest versions of the table changed meanwhile",
            remedy="look for torn manifests again",
            table=store.uri,
            expected=[each.path for each in found.torn],
            found=[each.path for each in now.torn],
        )
    copies = []
    for each in found.torn:
        copy = f"{directory}/{each.path.rpartition('/')[2]}"
        copies.append(copy)
        if each in now.torn:
            store.put_if_absent(copy, store.get(each.path))
            store.delete(each.path)
            _log.warning("a torn manifest was set aside [table=%s, version=%d, copy=%s]", store.uri, each.version, copy)
    # With the names in the directory: a removal that is not on the disk would be undone by the next power cut.
    store.sync_objects([ManifestFiles(store).locate(found.newest_whole).path])
    return tuple(copies)


def torn_error(store: ObjectStore, version: int | None = None) -> CorruptionError | None:
    """Return the error that says why a version, the newest by default, cannot be opened if it is torn, else None."""
    found = find_torn_versions(store)
    if not found.torn or version not in {None, *(each.version for each in found.torn)}:
        return None
    newest = found.torn[0]
    return CorruptionError(
        "the newest manifest of the table is torn, as a power cut leaves it when a commit was not synced",
        remedy="run `memwal repair`, which sets it aside and goes back to the newest whole version"
        if found.newest_whole is not None
        else "restore the table from a copy; no version of it is whole",
        table=store.uri,
        file=newest.path,
        version=newest.version,
        size_bytes=newest.size_bytes,
        problem=newest.problem,
        torn=len(found.torn),
        newest_whole=found.newest_whole,
    )


def _newest_first(store: ObjectStore) -> Iterator[tuple[int, ObjectInfo]]:
    listed = store.list_objects(TABLE_VERSIONS_DIRECTORY)
    named = ((version_of_manifest(info.path.removeprefix(f"{TABLE_VERSIONS_DIRECTORY}/")), info) for info in listed)
    found = [(version, info) for version, info in named if version is not None]
    yield from sorted(found, key=lambda each: each[0], reverse=True)


def _problem(store: ObjectStore, info: ObjectInfo, version: int) -> str | None:
    try:
        facts = read_manifest(info.size_bytes, lambda start, length: store.get_range(info.path, start, length))
    except CorruptionError as error:
        # Only unreadable bytes have a problem; a manifest that contradicts the format in another way is whole.
        problem = error.facts.get("problem")
        return None if problem is None else str(problem)
    return None if facts.version == version else f"it says that it is version {facts.version}"
